#!/usr/bin/env bash
# Runs a command beside a Slurm cluster of four nodes on this machine: `bash ci/slurm.sh [--user] COMMAND...`, as in
# `bash ci/slurm.sh srun -N 4 hostname`. Exits with the command's status. The cluster consists of Debian's packages,
# runs in a temporary folder, listens on 127.0.0.1 only, and is gone when the script ends: processes, files and cgroups.
# --user: if root runs this, the daemons and the command belong to the user `nobody`, as on a cluster of an ordinary
# user. Exits with 77 if the packages cannot be had.
#
# The command finds in its environment:
# SLURM_CONF             the configuration, which all programs of Slurm read
# PIPEWRIGHT_SLURM_NODE  a program: `kill n4` kills the daemon of a node and the supervisors of its steps (slurmstepd)
#                        with SIGKILL and leaves the processes of the jobs, `lose n4` kills all of them, and `start n4`
#                        starts the daemon again
set -euo pipefail

if [ "${1:-}" = --user ]; then wants_user=yes; shift; else wants_user=; fi
[ $# != 0 ] || { echo "usage: ci/slurm.sh [--user] COMMAND..." >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
. "$here/machine.sh"
[ "$(uname -s)" = Linux ] || skip linux "runs the nodes of Slurm"
packages slurmctld slurmd slurm-client munge

# Debian has these where the path of an ordinary user does not lead.
PATH=$PATH:/usr/sbin
switch=() user=$(id -un)
if [ -n "$wants_user" ] && [ "$(id -u)" = 0 ]; then
    user=nobody
    switch=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups)
fi

nodes=(n1 n2 n3 n4) cgroups=/sys/fs/cgroup/freezer tracking=linuxproc command_pid='' own='' start=$EPOCHREALTIME

# Prints the processes that were started with the configuration of the cluster: daemons, commands, jobs.
configured() { grep -lzsxF "SLURM_CONF=$conf" /proc/[0-9]*/environ | cut -d / -f 3; }

# Prints all processes of the cluster. slurmstepd writes its title over its environment, but has a log open.
processes() {
    {
        configured
        find /proc/[0-9]*/fd -lname "$dir/log/*" 2> /dev/null | cut -d / -f 3
    } | sort -u
}

# Prints those of the given pids that are no daemons.
of_jobs() {
    local pid
    for pid; do [[ " $own ${daemons[*]} " == *" $pid "* ]] || echo "$pid"; done
}

# Succeeds once no process with one of these pids is left, and fails after that many tenths of a second.
ended_within() {
    local tenths=$1 pid left
    shift
    for ((; tenths > 0; tenths--)); do
        left=
        for pid; do ! kill -0 "$pid" 2> /dev/null || left=yes; done
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    return 1
}

# Waits. During a plain `sleep`, bash drops a SIGINT that `sleep` itself did not get.
pause() {
    sleep "$1" &
    wait $!
}

# Ends processes: asks, waits up to 5 s, and kills.
end() {
    [ $# != 0 ] || return 0
    kill -TERM "$@" 2> /dev/null || true
    ended_within 50 "$@" || kill -KILL "$@" 2> /dev/null || true
}

take_down() {
    trap '' HUP INT TERM
    set +e
    [ -z "$command_pid" ] || end "$command_pid"
    local name daemons=() pids round
    for name in "${nodes[@]}" slurmctld munged; do daemons+=($(cat "$dir/run/$name.pid" 2> /dev/null)); done
    # The daemons do not end the jobs when they end, but they know processes that left their job.
    if [ -n "$own" ]; then
        "${as_user[@]}" timeout 5 scancel --quiet --partition=p 2> /dev/null
        for ((round = 0; round < 50; round++)); do
            [ -n "$(of_jobs $(processes))" ] || break
            # Instead of KillWait.
            [ $round -lt 5 ] || kill -KILL $(of_jobs $(configured)) 2> /dev/null
            sleep 0.1
        done
    fi
    end "${daemons[@]}"
    # Processes of a node that was killed.
    for ((round = 0; round < 50; round++)); do
        pids=($(processes))
        [ ${#pids[@]} != 0 ] || break
        kill -KILL "${pids[@]}" 2> /dev/null
        sleep 0.1
    done
    # Slurm locks this folder too, while it adds a job. What another cluster uses is not empty.
    [ $tracking != cgroup ] ||
        timeout 5 flock $cgroups find "${nodes[@]/#/$cgroups/slurm_}" -depth -type d -exec rmdir {} + 2> /dev/null
    rm -rf "$dir"
}

dir=$(mktemp -d /tmp/slurm.XXXXXX)
conf=$dir/slurm.conf
# Not exported: what this script runs is no part of the cluster.
as_user=(env SLURM_CONF="$conf" PIPEWRIGHT_SLURM_NODE="$dir/node" "${switch[@]}")
trap take_down EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Succeeds if nothing uses one of these ports.
are_free() {
    local port hex
    for port; do
        printf -v hex '%04X' "$port"
        ! grep -qsE "^ *[0-9]+: [0-9A-F]+:$hex " /proc/net/tcp /proc/net/tcp6 || return 1
    done
}

# Below the ports that the kernel gives to clients.
until port=$((20000 + RANDOM % 12000)) && are_free $port $((port + 1)) $((port + 2)) $((port + 3)) \
    $((port + 4)); do :; done

# With linuxproc a process escapes from its job by `setsid` and the end of its parent. The cgroups of version 1 belong
# to root: an ordinary user has only this. Version 2 needs systemd.
if [ "$user" = root ] && [ -w $cgroups/cgroup.procs ]; then tracking=cgroup; fi

mkdir "$dir"/{run,spool,state,log,munge,home}
cat > "$conf" << END
ClusterName=pipewright
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
# Not those of this script, which reads them meanwhile: a daemon empties its file before it writes to it.
SlurmctldPidFile=$dir/run/slurmctld.own
SlurmdPidFile=$dir/run/%n.own
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/%n
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
ProctrackType=proctrack/$tracking
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# The processors of this machine pose as those of four nodes.
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=100000,batch_sched_delay=0,default_queue_depth=10000
MaxJobCount=200000
MaxArraySize=100001
# Two clusters of root share the names of cgroups, but for the number of the job.
FirstJobId=$((1 + RANDOM * 1000))
MinJobAge=300
KillWait=2
SlurmdTimeout=5
ReturnToService=2
MpiDefault=none
NodeName=n[1-4] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 4))] CPUs=8 RealMemory=1000
PartitionName=p Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP
END
cat > "$dir/cgroup.conf" << END
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
END
cat > "$dir/node" << END
#!/bin/bash
# Kills and starts the daemons of a node: ACTION NODE.
set -eu
pids=\$(find /proc/[0-9]*/fd -lname "$dir/log/\$2" 2> /dev/null | cut -d / -f 3 | sort -u)
case \$1 in
    kill) kill -KILL \$pids ;;
    lose)
        for pid in \$(grep -lzsxF "SLURMD_NODENAME=\$2" /proc/[0-9]*/environ | cut -d / -f 3); do
            ! grep -qzsxF "SLURM_CONF=$conf" /proc/\$pid/environ || pids+=" \$pid"
        done
        # One of them may have ended meanwhile.
        kill -KILL \$pids || true ;;
    start)
        export SLURM_CONF=$conf
        # They may belong to root, and their folders to the user.
        rm -f $dir/log/\$2.out $dir/run/\$2.pid
        setsid slurmd -D -N \$2 < /dev/null > $dir/log/\$2.out 2>&1 &
        echo \$! > $dir/run/\$2.pid ;;
esac
END
chmod 755 "$dir/node"
head -c 128 /dev/urandom > "$dir/munge/key"
chmod 400 "$dir/munge/key"
# munged refuses a socket that others cannot reach.
chmod 711 "$dir" "$dir/munge"
[ ${#switch[@]} = 0 ] || chown -R "$user:" "$dir"

# Starts a daemon outside the process group of this script, which the keys of a terminal signal.
daemon() {
    local log=$1
    shift
    setsid "${as_user[@]}" "$@" < /dev/null > "$dir/log/$log.out" 2>&1 &
    echo $! > "$dir/run/$log.pid"
    # Or bash prints a line when one is killed.
    disown
}

failed() {
    tail -n 5 "$dir"/log/* >&2
    fail "$1"
}

daemon munged munged --foreground --num-threads=2 --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
    --pid-file="$dir/munge/pid" --log-file="$dir/log/munge" --seed-file="$dir/munge/seed"
until [ -S "$dir/munge/socket" ]; do
    kill -0 "$(cat "$dir/run/munged.pid")" 2> /dev/null || failed "munged has ended"
    pause 0.02
done
daemon slurmctld slurmctld -D -c
for node in "${nodes[@]}"; do daemon "$node" slurmd -D -N "$node"; done
until [ "$("${as_user[@]}" sinfo --noheader --format '%T %D' 2> /dev/null)" = "idle 4" ]; do
    for file in "$dir"/run/*.pid; do
        kill -0 "$(cat "$file")" 2> /dev/null || failed "$(basename "$file" .pid) has ended"
    done
    [ "${EPOCHREALTIME%.*}" -lt $((${start%.*} + 60)) ] || failed "the nodes are not ready after 60 s"
    pause 0.05
done
own=$(echo $(processes))
say "four nodes after $(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }") s, as $user, with proctrack/$tracking"

# A shell lets its background commands ignore these signals, and gives them no input.
[ ${#switch[@]} = 0 ] || export HOME=$dir/home
env --default-signal=INT,QUIT "${as_user[@]}" "$@" <&0 &
command_pid=$!
code=0
wait "$command_pid" || code=$?
command_pid=
exit "$code"
