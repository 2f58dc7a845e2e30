#!/bin/sh
# Turns a minimal Debian into the sandbox image. Runs as root inside it: provision.sh PACKAGES.txt
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

apt-get -q update
apt-get -q -y upgrade
# shellcheck disable=SC2046  # one word a package is what is wanted
apt-get -q -y install --no-install-recommends $(grep -v '^#' "$1")

# Sandboxes choose their uid when they start; this one is what the image has when nobody says otherwise.
id -u agent >/dev/null 2>&1 || useradd --uid 1000 --user-group --create-home --shell /bin/bash agent

# Nothing here may raise its rights, whatever flags the container is started with.
find / -xdev -type f -perm /6000 -exec chmod ug-s {} +

# Licence texts stay, the rest of the documentation does not.
find /usr/share/doc -type f ! -name copyright -delete
find /usr/share/doc -type d -empty -delete
rm -rf /usr/share/man/* /usr/share/info/* /usr/share/lintian /usr/share/locale/* \
    /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/lib/apt/lists/* /var/cache/debconf/*-old \
    /var/log/*.log /var/log/apt
: >/etc/machine-id
