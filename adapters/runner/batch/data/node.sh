# The processes of one node (`runner.batch.files`): read from standard input by a shell there, with
# what it is to run; a line that follows is the time of the start, nanoseconds, or 0. POSIX sh, but for
# `date +%N` and `sleep .1`. It says: R ready, F it cannot be, A it knows the time, N it was not
# started, S started, E ended; with the node's name, so that several may speak at once.

fail() {
    echo "F $node $*"
    exit 1
}

go() { # out err path command, then as env takes it
    out=$1 err=$2 path=$3 file=$4
    shift 4
    if [ "$mode" = run ]; then
        set -- "HOME=$HOME" "USER=$USER" "LOGNAME=$USER" "SHELL=${SHELL:-/bin/sh}" \
            "COALLOC_SLURM_JOB_ID=$SLURM_JOB_ID" "$@"
        gpus=$CUDA_VISIBLE_DEVICES
        [ -z "$gpus" ] || set -- "CUDA_VISIBLE_DEVICES=$gpus" "$@"
        exec </dev/null >>"$out"
        if [ "$err" ]; then exec 2>>"$err"; else exec 2>&1; fi
        exec env $clean "$@"
    fi
    for each in "$out" "$err"; do
        [ -z "$each" ] || { true >>"$each"; } 2>/dev/null || fail output_unwritable "$each"
    done
    case $file in
    */*) [ -e "$file" ] || fail not_found "$file: no such command" ;;
    *) (PATH=$path && command -v "$file") >/dev/null || fail not_found "$file: no such command" ;;
    esac
    case $file in */*) [ -f "$file" ] && [ -x "$file" ] || fail not_executable "$file" ;; esac
}

clock() { # sets $time, also where a signal ends date
    until time=$(date "+$1"); do :; done
}

until_at() { # a time in nanoseconds
    clock %s%N
    left=$(($1 - time))
    [ $left -le 0 ] || sleep "$((left / 1000000000)).$(printf %09d $((left % 1000000000)))"
}

taken_back() {
    [ -z "$pids" ] || kill -9 $pids
    echo "N $node"
    exit 1
}

main() {
    node=${SLURMD_NODENAME:-$(hostname)}
    [ "$once" ] && node=$one || clean=-i
    files=$HOME/$COALLOC_FILES pids='' codes='' worst=0 mode=check
    trap taken_back TERM
    trap 'caught=yes; [ -z "$pids" ] || kill -9 $pids 2>/dev/null' URG
    trap 'caught=yes' USR1 PIPE
    cd "$cwd" 2>/dev/null || fail cwd_missing "$cwd: No such file or directory"
    case $(date +%N) in *[!0-9]* | '') fail no_clock 'date knows no nanoseconds' ;; esac
    for rank in $(ranks); do each "$rank"; done
    echo "R $node"
    read -r at && [ "$at" ] || exit 1
    echo "A $node"
    mode=run
    for rank in $(ranks); do # they are there before, and wait by themselves
        (until_at "$at" && each "$rank") &
        pids="$pids $!"
    done
    # The sleep may be ended before the shell hears of it; what is ended from here on may have begun.
    until_at $((at - 50000000)) || taken_back
    trap 'caught=yes' TERM
    until_at "$at"
    clock %s.%N
    echo "S $node $time"
    for pid in $pids; do
        code='' caught=yes
        while [ "$caught" ]; do # a signal ends a wait, too; what has been waited for is 127 then
            caught=''
            wait "$pid"
            now=$?
            [ "$code" ] && [ $now = 127 ] || code=$now
        done
        codes="$codes $code"
        [ $code -le $worst ] || worst=$code
    done
    times >"$files/times.$node"
    {
        read -r user sys
        read -r user sys
    } <"$files/times.$node"
    clock %s.%N
    echo "E $node $time $user $sys$codes"
    exit $worst
}
