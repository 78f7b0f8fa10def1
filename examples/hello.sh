#!/bin/sh
# A job script: coalloc submit examples/hello.sh world
#COALLOC --job-name hello --ntasks 6
#COALLOC --time 5 --bandwidth 50Mbps
echo "hello ${1:-you} from rank $COALLOC_RANK of $COALLOC_SIZE on $COALLOC_CLUSTER"
