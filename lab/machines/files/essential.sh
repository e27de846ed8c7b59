#!/bin/sh
# Before the kernel is installed: an initrd that loads the modules of our machines, and no others. Without udev, whose cold plug
# is done again, for all devices, by the system that the initrd starts. The network card's module is among them, as in any ordinary
# initrd: found by that cold plug it is four seconds late with TCG.
set -eu
mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/etc/initramfs-tools/hooks"
echo MODULES=list >"$1/etc/initramfs-tools/conf.d/lab"
cat >"$1/etc/initramfs-tools/hooks/lab" <<'HOOK'
#!/bin/sh
[ "$1" = prereqs ] && echo udev && exit 0
. /usr/share/initramfs-tools/hook-functions
for module in virtio_pci virtio_blk virtio_net ext4; do force_load "$module"; done
rm -f "$DESTDIR"/scripts/init-*/udev
HOOK
chmod 755 "$1/etc/initramfs-tools/hooks/lab"
