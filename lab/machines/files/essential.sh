#!/bin/sh
# Before the kernel is installed: an initrd with the modules of our machines only. The network card's is among them, as in any
# ordinary initrd: found by udev's cold plug alone it is four seconds late with TCG.
set -eu
mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/etc/initramfs-tools/hooks"
echo MODULES=list >"$1/etc/initramfs-tools/conf.d/lab"
cat >"$1/etc/initramfs-tools/hooks/lab" <<'HOOK'
#!/bin/sh
[ "$1" = prereqs ] && exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules virtio_pci virtio_blk virtio_net ext4
HOOK
chmod 755 "$1/etc/initramfs-tools/hooks/lab"
