# The batch job of a part whose nodes reach nobody: it is told, and tells, by files in its user's home.
#
# Before this stand COALLOC_FILES, their folder, and COALLOC_LEASE, seconds; the arguments are the
# step that has a shell on each node. The executor writes `lease`, `run` and `at` there, and signals
# USR1; all that is said here goes to `said` (`runner.batch.files`). POSIX sh, but for `mktemp` and
# `mkfifo`, and on the nodes `date +%N` and `sleep .1` (`node.sh`).

cd "$HOME/$COALLOC_FILES" || exit 203
heard=$(date +%s) word='' woken='' at='' end=''
trap 'woken=yes' USR1 TERM PIPE # the processes get those themselves, and how they end is said

nap() { # until there may be news; who hears nothing for a lease gives the nodes back
    read -r told <lease
    now=$(date +%s)
    [ "$told" = "$word" ] || word=$told heard=$now
    if [ $((now - heard)) -ge "$COALLOC_LEASE" ]; then
        echo X >>said
        exit 1
    fi
    sleep 1 &
    [ "$woken" ] || wait $!
    woken=
}

echo "H $(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\n' ' ')" >>said
until [ "$(tail -n 1 run)" = 'main # end' ]; do nap; done
work=$(mktemp -d "${TMPDIR:-/tmp}/coalloc-XXXXXX") && mkfifo "$work/in" || exit 4
if grep -q '^once=yes' run || [ "$SLURM_JOB_NUM_NODES" = 1 ]; then set -- /bin/sh; fi
"$@" <"$work/in" >>said 2>err &
step=$!
exec 3>"$work/in"
rm -rf "$work" # now, since a script that is killed removes nothing; both have it open
cat run >&3
until read -r at end <at && [ "$end" = . ]; do
    kill -0 $step 2>/dev/null || break
    nap
done
echo "$at" >&3
exec 3>&-
code='' woken=yes
while [ "$woken" ]; do # a signal ends a wait, too; what has been waited for is 127 then
    woken=''
    wait $step
    now=$?
    [ "$code" ] && [ $now = 127 ] || code=$now
done
echo "D $code $(tail -n 1 err)" >>said
exit $code
