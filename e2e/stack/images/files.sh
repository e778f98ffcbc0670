#!/bin/sh
# Lays out the file system of an image: a program, the shared libraries that it needs, the authorities that it may trust, and the
# names of its users. No shell, no package manager.
#
#   files.sh PROGRAM FOLDER
#
# The Dockerfiles run it. e2e/stack/src/images.rs makes the same without a container engine, and its tests compare the two.
set -eu
program=$1
root=$2
if ldd "$program" | grep 'not found'; then
    exit 1
fi
install -D -m 755 "$program" "$root/usr/bin/$(basename "$program")"
ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
    install -D -m 755 "$library" "$root$library"
done
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' > "$root/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' > "$root/etc/group"
# Without it glibc asks DNS before /etc/hosts.
printf 'passwd: files\ngroup: files\nhosts: files dns\n' > "$root/etc/nsswitch.conf"
chmod 644 "$root/etc/passwd" "$root/etc/group" "$root/etc/nsswitch.conf"
mkdir -m 1777 "$root/tmp"
