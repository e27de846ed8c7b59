#!/bin/sh
# How a generic machine becomes a node: the status quo that Kamino replaces. Run
# as the scale set's extension, with what customData brought.
set -eu
# As AKS's script does: the agent runs it again on a machine that forgot it, as a sealed donor does.
[ -e /opt/lab/provision.complete ] && exit 0
cloud-init status --wait >/dev/null
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q -y --no-install-recommends -o Dpkg::Options::=--force-confold install containerd runc containernetworking-plugins kubelet lab-data lab-library lab-tool
systemctl enable containerd.service kubelet.service
systemctl restart containerd.service
for image in $IMAGES; do
  ctr --namespace k8s.io images pull --plain-http "$image" >/dev/null
done
systemctl start kubelet.service
touch /opt/lab/provision.complete
