"""What the blacklist has nothing to say about: words that only name a danger, and ordinary work. Never run."""

from __future__ import annotations

import pytest

from bubbles.controller.policy.blacklist import Tier
from tests.policy.test_blacklist_cases import lines, look

SCRIPTS = r"""
rm -rf build
rm -rf node_modules
rm -rf ./node_modules dist
rm -rf build/*
rm -rf build/ dist/ *.egg-info
rm -rf @ROOT@/build
rm -rf /tmp/x
rm -rf ~/.cache/pip
rm -f test-output.log
rm -f build/*.o
rm *.pyc
cd build && rm -rf *
cd sub && rm -rf .
(cd sub && rm -rf ./*)
rm -r -- -weird
rmdir build
pytest -k shutdown
pytest -k 'rm and not reboot'
pytest -k id_rsa
pytest tests/test_reboot.py -q
pytest tests/test_ssh.py::test_id_rsa
pytest --rootdir=/
git add src/dd.py src/mkfs_test.py
git commit -m 'docs: explain why rm -rf / is blocked'
git commit -m 'feat: curl | sh installer warning'
git commit -m 'do not read ~/.ssh/id_rsa'
git commit -m '/etc/shadow is not for you'
git commit -am 'sudo'
git commit -m 'chore: bump (#123)'
git log --grep 'rm -rf /'
git log --grep=sudo
grep -rn sudo src
grep -rn 'rm -rf /' .
grep -rn '/etc/shadow' src
grep -e /etc/passwd -r src
rg '\.ssh/id_rsa' src
rg 'curl .* \| sh'
echo "rm -rf /"
echo sudo reboot
printf '%s\n' 'rm -rf ~'
echo ~/.ssh/id_rsa
cargo test eval_expr
cargo test shutdown
npm test -- --testPathPattern=sudo
npm test -- -t 'kill -9 -1'
cmake --build build --target installer_tests
npm run reboot
yarn reboot
npx rimraf dist
rm -rf ./~
find build -name x -exec rm -rf {} \;
scp -i ~/.ssh/id_rsa x host:
make shutdown
./scripts/reboot.sh
python scripts/shutdown.py
node mkfs.js
cat src/dd.py
man sudo
which sudo
type rm
ls ~/.ssh
ls -la /etc
test -f ~/.ssh/id_rsa
[ -f ~/.netrc ]
ls /dev
ls -l /dev/sda
cat /etc/passwd
cat /etc/os-release
cat /etc/hosts
cat ~/.bashrc
source ~/.bashrc
. .venv/bin/activate
source .venv/bin/activate
source "$VENV/bin/activate"
cat .env
cat .npmrc
cat ~/.ssh/id_rsa.pub
cat ~/.ssh/known_hosts
ssh host
ssh -i ~/.ssh/id_rsa host
scp x host:
crontab -l
systemctl status nginx
systemctl list-units
systemctl --user status
service nginx status
date
date +%s
date -u '+%Y-%m-%d'
date -d yesterday
hostname
hostname -I
ip addr
ip a
ip route show
ifconfig
mount
sysctl -a
iptables -L
iptables -nL
ufw status
apt-get install -y cmake
apt-cache search x
apt list --installed
dpkg -l
pip install -r requirements.txt
pip install -e .
pip uninstall -y x
npm publish
npm install
npm ci
curl https://example.org
curl -s https://example.org | jq .
curl -s https://example.org | python3 -m json.tool
curl -s x | python3 -c 'import json,sys; print(json.load(sys.stdin))'
curl -o x.tgz https://example.org/x.tgz
curl -d '{"a":1}' https://example.org
curl -d a=b https://example.org
curl -H 'Authorization: x' https://example.org
curl -d @x.json http://localhost:8000/a
curl -u me@x.org:p https://example.org
curl -d 'mail=a@b.c' https://example.org
wget https://example.org
wget -i urls.txt -P /
docker images
docker ps -a
docker run x
docker run --rm -v @ROOT@:/w -w /w python:3 pytest -q
docker run --rm -v "$PWD":/w -w /w python:3 pytest -q
docker run -h box -it x
docker build -t x .
docker compose up -d
docker compose down
docker exec c ls
docker logs c
docker rm c
kubectl get pods
kubectl apply -f x.yaml
terraform plan
terraform apply
aws s3 ls
aws s3 cp x s3://b/x
git push
git push origin main
git push -u origin HEAD
git push --tags
git push origin HEAD:refs/for/main
git fetch
git fetch -u origin
git pull --rebase
git clone https://x/y
git reset
git reset HEAD x
git reset --soft HEAD~1
git checkout main
git checkout -b x
git checkout -- src/a.py
git restore --staged .
git restore src/a.py
git switch -c x
git switch main
git branch -d x
git stash
git stash pop
git clean -n
git config --get user.name
git config user.name
git config user.email x@y
git config --global --get user.name
git config -l
git -c color.ui=always diff
git -c core.pager=cat diff
git -c user.name=x commit -m y
git rm -r src/x
git status
git diff --stat HEAD~1 -- src
git gc
umask 000
chmod +x scripts/run.sh
chmod -R 755 build
chmod 644 x
chown -R me build
chmod 755 .
mv a b
mv src/a.py src/b.py
cp a b
cp -r src /tmp/x
cp /dev/null x
cat /dev/null > x
head -c 10 /dev/urandom
dd if=/dev/zero of=x.img bs=1M count=1
truncate -s 0 build/x.log
tee build/x.log
pytest -q 2>&1 | tee out.log
pytest -q > /dev/null 2>&1
pytest -q 2>/dev/stderr
ls > /dev/null
echo x > /dev/stderr
echo x > ../x.log
echo x > /tmp/x
find . -name '*.py'
find / -name x
find build -name '*.o' -delete
find /tmp/x -delete
find . -name x -exec cat {} \;
fd -e py
fd -e py -x wc -l
ls | xargs wc -l
git ls-files | xargs grep -n foo
git ls-files '*.py' | xargs pytest -q
tar xf a.tar
tar czf x.tgz src
tar xf a.tar --to-command='sh'
rsync -a src/ build/
rsync -a a b:
sed -i 's/a/b/' src/app.py
sed -n '1,40p' src/app.py
sed -n '/etc/p' x
sort x | uniq -c
python -c 'print(1)'
python3 -c 'import os; print(os.getcwd())'
python3 -c 'import base64; print(base64.b64encode(b"x"))'
python3 -c 'import shutil; shutil.rmtree("build")'
python3 -c 'import subprocess; subprocess.run(["ls"])'
python3 -c 'print("reboot")'
python -m http.server 8000
python -m pytest -q
python -V
python script.py
python3 script.py < data.txt
cat data.txt | python3 script.py
cat x.json | node script.js
node -e 'console.log(1)'
node --version
node server.js
perl -e 'unlink glob q(*)'
perl -pe 's/a/b/' x
ruby -e 'puts 1'
awk '{print $1}' x
pytest -q | awk 'BEGIN{system("id")}'
bash script.sh
bash -c 'pytest -q'
sh -c 'echo "$1"' _ reboot
bash -lc 'make test'
sh -x script.sh < input
timeout 60 pytest -q
kill 1234
kill -9 1234
kill -1 1234
kill %1
kill -l
strace ls
gdb ./x
gdb --batch -ex run ./x
gdb ./x core
perf stat ls
nc -z localhost 5432
nc -l 8080
socat -V
walk() { walk "$1/x"; }; walk a
f() { g | h; }; f
g() { echo hi; }; g | cat
redis-cli GET x
psql -c 'select 1'
psql -c 'select * from t where x = 1'
sqlite3 x.db '.tables'
mysql -e 'show databases'
gh pr view 7
gh pr merge 7
gh repo view
gh api repos/x/y
cargo publish
shutdown --help
shutdown -c
sudo_test.sh
init project
npm init -y
poetry init
terraform init
vim src/x.py
at_exit
tox -e py311
go test ./...
make install
make -C sub clean
code .
xdg-open x
reboot_test --now
./build/test_* --gtest
env
printenv PATH
history
alias ll='ls -l'
export PATH=$PATH:~/bin
[ -d build ] && ls
[[ -f x ]] && cat x
touch src/x.py
mkdir -p build/x
ln -s a b
install -m 755 x build/x
openssl rand -hex 8
openssl x509 -in cert.pem -noout -text
base64 x.png
echo aGVsbG8gd29ybGQ= | base64 -d
ssh-keygen -lf x.pub
gpg --verify x.sig
patch -p1 < x.patch
less README.md
du -sh .
df -h
lsblk
ps aux
top
dmesg
journalctl -u x
uname -a
"""

ON_STDIN = (
    "python3 - <<'PY'\nimport shutil; shutil.rmtree('src')\nPY",
    "python3 <<'PY'\nprint(\"rm -rf build\")\nPY",
    "cat <<'TEXT'\nrm -rf /\nTEXT",
)

ONLY_ASKED_ABOUT = r"""
cmake -E rm -rf build
tar xf a.tar -C /
git rm -r .
git clean -fdx
command -v sudo
"""


@pytest.mark.req("DEC-02")
def test_what_is_ordinary_or_only_named_is_no_finding() -> None:
    found = {script: findings[0].reason for script in (*lines(SCRIPTS), *ON_STDIN) if (findings := look(script))}
    assert found == {}


@pytest.mark.req("DEC-02")
@pytest.mark.parametrize("script", lines(ONLY_ASKED_ABOUT))
def test_what_a_person_may_want_is_not_refused(script: str) -> None:
    assert all(finding.tier is Tier.HIGH_RISK for finding in look(script))
