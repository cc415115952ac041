# Sourced by vm.sh. Provides the kernels of other Debian releases, unpacked into the cache.

# The machines: name, how it runs, Debian's architecture, release and package of its kernel.
machines='
uml-5.10    uml   amd64   bullseye           user-mode-linux
uml-6.1     uml   amd64   bookworm           user-mode-linux
5.10        qemu  amd64   bullseye-security  linux-image-cloud-amd64
6.1         qemu  amd64   bookworm           linux-image-cloud-amd64
6.12        qemu  amd64   trixie             linux-image-cloud-amd64
newest      qemu  amd64   sid                linux-image-cloud-amd64
arm64-6.1   qemu  arm64   bookworm           linux-image-cloud-arm64
riscv64     qemu  riscv64 sid                linux-image-riscv64
'

# Sets way, arch, release and package to the values of a machine.
describe_machine() {
    read -r _ way arch release package <<< "$(awk -v name="$1" '$1 == name' <<< "$machines")"
    [ -n "$package" ] || fail "no machine is called $1; there are:$(awk '{printf " %s", $1}' <<< "$machines")"
}

# Runs apt-get or apt-cache for that release and architecture, with lists and settings of their own: the machine's stay
# as they are. The packages come from where the machine's own come from.
apt_of_release() {
    local program=$1 folder=$new/apt site; shift
    if [ ! -d "$folder" ]; then
        mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
        site=$(apt-get indextargets --format '$(SITE) $(ORIGIN)' 'Created-By: Packages' |
            awk '$2 == "Debian" {print $1; exit}')
        [ -n "$site" ] || skip "archive:$release" "this machine has no package source of Debian"
        case $release in *-security) site=${site%/debian}/debian-security ;; esac
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $release main" \
            > "$folder/sources.list"
    fi
    set -- -o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=- -o \
        "Dir::State::lists=$folder/lists" \
        -o "Dir::Cache=$folder/cache" -o Dir::State::status=/dev/null -o "APT::Architecture=$arch" \
        -o "APT::Architectures=$arch" -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root "$@"
    "$program" "$@"
}

# Downloads a package of the release, and unpacks it into a folder.
unpack_package() {
    (cd "$new" && apt_of_release apt-get download -qq "$1" > "$new/log" 2>&1) ||
        { cat "$new/log" >&2; skip "archive:$release" "apt-get could not fetch $1"; }
    mkdir -p "$2"
    dpkg -x "$new"/"${1%%=*}"_*.deb "$2"
    rm "$new"/"${1%%=*}"_*.deb
}

# Prints those dependencies of a package that match a pattern.
dependencies() { apt_of_release apt-cache depends "$1" |
    awk -v pattern="^$2" '$1 == "Depends:" && $2 ~ pattern {print $2}'; }

# Unpacks the kernel of the machine into $new/kernel.
fetch_kernel() {
    local image=$package
    [ ! -d "$kernel" ] || return 0
    say "fetching the kernel of $machine"
    apt_of_release apt-get update -qq > "$new/log" 2>&1 ||
        { cat "$new/log" >&2; skip "archive:$release" "apt-get could not read the lists"; }
    case $package in
        # A package without contents, which depends on the newest kernel.
        linux-image-*) image=$(dependencies "$package" linux-image-) ;;
    esac
    [ -n "$image" ] || skip "archive:$release" "has no $package"
    # Since Linux 7 an image depends on the packages of its kernel and of its modules.
    for image in "$image" $(dependencies "$image" 'linux-(binary|modules)-'); do
        unpack_package "$image" "$new/kernel"
    done
    [ "$way" = uml ] || make_initramfs
    mv "$new/kernel" "$kernel"
}

# Adds the root of another processor's system: busybox, which becomes every program there. Programs have to be static.
make_root() {
    mkdir -p "$new"/kernel/root/{bin,etc,dev,proc,sys,run,tmp,usr/bin,usr/lib,var/tmp}
    cp "$1" "$new/kernel/root/bin/busybox"
    echo 'root:x:0:0:root:/tmp/home:/bin/sh' > "$new/kernel/root/etc/passwd"
    echo 'root:x:0:' > "$new/kernel/root/etc/group"
}

# Adds vmlinuz and initrd to the kernel: busybox, the modules that find the root, and the first process.
make_initramfs() {
    local root=$new/initramfs version module file
    # Since Debian 13 the modules and the image lie in /usr/lib.
    [ -d "$new/kernel/lib/modules" ] || ln -s usr/lib "$new/kernel/lib"
    version=$(basename "$new"/kernel/lib/modules/*)
    file=$(cd "$new/kernel" && find . -name "vmlinu[xz]*" -type f | head -n 1)
    ln -s "$file" "$new/kernel/vmlinuz"
    depmod -b "$new/kernel" "$version"
    # Static: an initramfs has no libraries.
    unpack_package busybox-static "$new/busybox"
    mkdir -p "$root/bin" "$root/modules"
    cp "$new"/busybox/*bin/busybox "$new"/busybox/usr/bin/busybox "$root/bin/" 2> /dev/null || true
    [ -x "$root/bin/busybox" ] || fail "busybox-static contains no busybox"
    [ "$arch" = amd64 ] || make_root "$root/bin/busybox"
    install -m 755 "$PWD/ci/vm/qemu-init" "$root/init"
    touch "$root/modules/order"
    for module in virtio_pci virtio_mmio virtio_blk virtio_console virtiofs overlay ext4 xfs btrfs loop virtio-rng; do
        modprobe -d "$new/kernel" -S "$version" --show-depends "$module" 2> /dev/null |
            awk '$1 == "insmod" {print $2}' || true
    done | awk '!seen[$0]++' | while read -r file; do
        module=$(basename "$file" .xz)
        case $file in
            *.xz) xz -dc "$file" > "$root/modules/$module" ;;
            *) cp "$file" "$root/modules/$module" ;;
        esac
        echo "$module" >> "$root/modules/order"
    done
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$new/kernel/initrd"
    # Linux 5.10 requires that an archive behind it begins at a multiple of four.
    truncate -s %4 "$new/kernel/initrd"
}
