# Sourced by a shell in a machine of vm.sh, as root. Starts systemd's user manager of the user 1000, in a cgroup that is
# delegated to it, and moves this shell to that user's cgroups. The manager's process is in
# PIPEWRIGHT_TEST_USER_MANAGER.
uid=1000
export XDG_RUNTIME_DIR=/run/user/$uid PIPEWRIGHT_TEST_USER_MANAGER
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR" /tmp/home
chown $uid:$uid "$XDG_RUNTIME_DIR" /tmp/home
chmod 700 "$XDG_RUNTIME_DIR"
service=/sys/fs/cgroup
for part in user.slice user-$uid.slice user@$uid.service; do
    for controller in cpu memory pids; do echo +$controller > $service/cgroup.subtree_control; done
    service=$service/$part
    mkdir $service
done
mkdir $service/start
for group in $service $service/start; do
    chown $uid:$uid $group $group/cgroup.procs $group/cgroup.subtree_control $group/cgroup.threads
done
echo $$ > $service/start/cgroup.procs
# It moves from the cgroup in which it is started to one in that.
setpriv --reuid $uid --regid $uid --clear-groups -- \
    sh -c "echo \$\$ > $service/cgroup.procs && exec /usr/lib/systemd/systemd --user" < /dev/null > /tmp/manager.log \
        2>&1 &
PIPEWRIGHT_TEST_USER_MANAGER=$!
tries=0
until [ -S "$XDG_RUNTIME_DIR/systemd/private" ]; do
    sleep 0.2
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { cat /tmp/manager.log; exit 1; }
done
