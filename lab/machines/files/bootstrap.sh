#!/bin/sh
# How a generic machine becomes a node: the status quo that Kamino replaces. Run
# as the scale set's extension, with what customData brought.
set -eu
cloud-init status --wait >/dev/null
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q -y --no-install-recommends -o Dpkg::Options::=--force-confold install containerd runc containernetworking-plugins kubelet lab-tool
systemctl enable containerd.service kubelet.service
systemctl restart containerd.service
for image in $IMAGES; do
  ctr --namespace k8s.io images pull --plain-http "$image" >/dev/null
done
systemctl start kubelet.service
