#!/usr/bin/env bash
# configures and starts kubelet-eks; user data calls it
set -o errexit
snap start --enable kubelet-eks
