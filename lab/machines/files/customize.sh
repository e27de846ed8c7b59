#!/bin/sh
# When all packages are there: fetch, but do not install, what generic machines
# install when they join, and leave out what belongs to one machine.
set -eu
root=$1
mkdir -p "$root/lab/partial"
chroot "$root" apt-get -qq -y --no-install-recommends --download-only -o Dir::Cache::archives=/lab install \
  containerd runc containernetworking-plugins
rm -rf "$KAMINO_LAB_REPO"
mkdir -p "$KAMINO_LAB_REPO"
mv "$root"/lab/*.deb "$KAMINO_LAB_REPO/"
rm -rf "$root/lab"
chroot "$root" systemctl enable systemd-networkd.service ssh.service
# Their work at boot is noise here: nothing outside can be reached.
chroot "$root" systemctl mask apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service e2scrub_all.timer e2scrub_reap.service
rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id" "$root/etc/hostname"
: >"$root/etc/machine-id"
rm -rf "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/*
