#!/bin/sh
# Measures the tables of docs/networks.md on HTTP/1.1, HTTP/2 and HTTP/3.
#   measure.sh SEALION-LAB SEALION OUT [NGINX]
# The recorded rows are of programs of the dev profile with opt-level 1 for the server (cargo build --config
# profile.dev.package.sealion.opt-level=1), 2026-11-27. The times are a guest's: they hold beside other work on the host.
set -eu
lab=$1 sealion=$2 out=$3 nginx=${4-}

# run NAME ARMS SIZES LOSS RTT RATE SAMPLES-WITH-LOSS
run() {
    timeout 3600 "$lab" network --kernel 6.1 --arms "$2" --sizes "$3" --loss "$4" --rtt "$5" --rate "$6" --samples 3 \
        --samples-with-loss "$7" --sealion "$sealion" --out "$out/$1.csv"
}

run no-loss-80 user,user-h2,user-h3,nginx-h2 16k,100k,1m,4m 0 80 5,50 1
run no-loss-200 user,user-h2,user-h3,nginx-h2 16k,100k,1m,4m 0 200 20 1
run h2-80 user-h2 16k,100k,1m 0,1,5 80 5,50 20
run h2-200 user-h2 16k,100k,1m 0,1,5 200 20 20
# h3-80-before and h3-200-before are the same with third_party/quinn-proto as of commit 500da0a9.
run h3-80 user-h3 100k,1m 0,1,5 80 50 20
run h3-200 user-h3 100k,1m 0,1,5 200 20 12
# Of the release profile, 2026-11-27: 60 requests, for the spread of one cell.
run h2-200-1m user-h2 1m 1 200 20 60
run h3-200-1m user-h3 1m 1 200 20 60
# 100 Mbit/s. No row of these is recorded yet.
for rtt in 80 200; do
    run no-loss-$rtt-100 user,user-h2,user-h3,nginx-h2 16k,100k,1m,4m 0 $rtt 100 1
    run h2-$rtt-100 user-h2 100k,1m 1,5 $rtt 100 20
    run h3-$rtt-100 user-h3 100k,1m 1,5 $rtt 100 20
done
# h3-80-bbr: the same with http3.congestion = "bbr" as the default of the program, and 30 requests with loss.
# Two series, each of two guests side by side.
for series in 1 2; do
    run h2-1m-$series user-h2 1m 1 80 50 100
    run h3-1m-$series user-h3 1m 1 80 50 100
done
# peers.csv: the four runs of 80 ms with 50 Mbit/s and 200 ms with 20 Mbit/s. NGINX is nginx with HTTP/3. Its directory has its libraries, if the guest's are older:
# a script there starts the program by their dynamic linker.
peers() {
    timeout 3600 "$lab" network --kernel 6.1 --arms user-h3,nginx-h3,user-h2,nginx-h2 --sizes 1k,1m --visits new --rtt "$1" --rate "$2" \
        --loss "$3" --samples-with-loss 30 --sealion "$sealion" --nginx "$nginx" --out "$out/peers-$1-$2-$3.csv"
}
if [ -n "$nginx" ]; then
    for loss in 1 5; do
        peers 80 50 $loss
        peers 200 20 $loss
        # Not recorded yet.
        peers 80 100 $loss
        peers 200 100 $loss
    done
fi
