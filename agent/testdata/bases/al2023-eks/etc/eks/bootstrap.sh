#!/usr/bin/env bash
echo "this image is configured by nodeadm"
exit 1
