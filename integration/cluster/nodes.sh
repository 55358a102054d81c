# A cluster of two nodes on this machine, without a container engine for it: functions for run.sh, which sets dir (what build.sh made) and run (everything else).
#
# Each node is a process with namespaces of its own (network, mounts, processes), so that nothing of it shows outside, no traffic leaves them, and all of it ends with that process.
# That process ends with the shell that made it, however that ends, so namespaces are made by no subshell. NATS and PostgreSQL are beside the cluster, in the namespaces of node 1.

lan=10.240.0      # the network of the nodes: .1 and .2; servers have .11 to .14
pods=10.244       # that of Pods is divided by nodes: 10.244.1.0/24
services=10.96    # and that of Services
group=rondo-cluster # the control groups of nodes are below this one

# within NODE COMMAND...: runs a command in the namespaces of a node.
within() {
	local node=$1
	shift
	nsenter -t "$(cut -d' ' -f1 "$run/node$node/init")" -n -m -p -u -- env PATH="$dir/bin:$PATH" KUBECONFIG="$run/kubeconfig" "$@"
}

# start NODE NAME COMMAND...: runs it in the background, with a log.
start() {
	local node=$1 name=$2
	shift 2
	within "$node" bash -c 'setsid nohup "$@" >>'"'$run/node$node/$name.log'"' 2>&1 &' _ "$@"
}

# until_ok SECONDS COMMAND...: tries a command until it succeeds.
until_ok() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || { echo "not within the time: $*" >&2; return 1; }
		sleep 1
	done
}

# began PID: when a process has begun, which tells it from another one with the same number.
began() { cut -d' ' -f22 "/proc/$1/stat" 2>/dev/null; }

down() {
	local node pid then
	for node in 2 1; do
		[ -f "$run/node$node/init" ] || continue
		read -r pid then <"$run/node$node/init"
		[ "$(began "$pid")" != "$then" ] || kill -9 "$pid" || true # with it ends everything in its namespaces
	done
	# The kernel takes a moment to end all processes of a namespace; groups can be removed then.
	local end=$((SECONDS + 30))
	while :; do
		for top in /sys/fs/cgroup/$group /sys/fs/cgroup/*/$group; do
			[ ! -d "$top" ] || find "$top" -depth -type d -exec rmdir {} \; 2>/dev/null || true
		done
		compgen -G "/sys/fs/cgroup/$group" >/dev/null || compgen -G "/sys/fs/cgroup/*/$group" >/dev/null || break
		[ $SECONDS -lt $end ] || { echo "control groups are left below /sys/fs/cgroup/*/$group" >&2; break; }
		sleep 0.5
	done
	rm -rf "$run"
}

# namespaces NODE: makes them.
namespaces() {
	local node=$1 here=$run/node$1
	mkdir -p "$here"/{containerd,run,cni,kubelet,pki}
	setpriv --pdeathsig KILL unshare --mount --net --pid --uts --fork --kill-child --mount-proc \
		bash -c "hostname node$node; mount --make-rslave /; while :; do sleep 100 & wait; done" </dev/null >/dev/null 2>&1 &
	local outer=$! inner
	until_ok 30 pgrep -P $outer
	inner=$(pgrep -P $outer)
	echo "$inner $(began "$inner")" >"$here/init"
	until_ok 30 within "$node" sh -c '[ "$(hostname)" = node'"$node"' ]'
	within "$node" ip link set lo up
	if [ "$node" = 1 ]; then
		within 1 ip link add lan type bridge
		within 1 ip link set lan up
		for i in 1 11 12 13 14; do within 1 ip address add $lan.$i/24 dev lan; done
		within 1 ip route add default via $lan.254 # which does not exist: nothing leads out
	else
		ip link add "lan$node" netns "$(cut -d' ' -f1 "$run/node1/init")" type veth peer name eth0 netns "$inner"
		within 1 ip link set "lan$node" master lan up
		within 1 ip route add "$pods.$node.0/24" via "$lan.$node"
		within "$node" ip address add "$lan.$node/24" dev eth0
		within "$node" ip link set eth0 up
		within "$node" ip route add default via $lan.1
	fi
	within "$node" sysctl -qw net.ipv4.ip_forward=1
	within "$node" sysctl -qw net.bridge.bridge-nf-call-iptables=1
	# The kubelet wants these of the whole machine. It sees what it wants, and the machine stays as it is.
	local setting
	for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
		echo "${setting#*=}" >"$here/$(basename "${setting%=*}")"
		within "$node" mount --bind "$here/$(basename "${setting%=*}")" "/proc/sys/${setting%=*}"
	done
}

# control_groups makes the group of a node. With version 1 each controller has a tree of its own, and one for cpusets needs its values.
control_groups() {
	local node=$1 tree
	if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
		mkdir -p "/sys/fs/cgroup/$group/node$node"
		for tree in /sys/fs/cgroup /sys/fs/cgroup/$group; do
			sed 's/[a-z_]*/+&/g' "$tree/cgroup.controllers" >"$tree/cgroup.subtree_control"
		done
		return
	fi
	for tree in cpu cpuacct cpuset memory devices freezer blkio pids hugetlb perf_event systemd; do
		[ ! -d "/sys/fs/cgroup/$tree" ] || mkdir -p "/sys/fs/cgroup/$tree/$group/node$node"
	done
	for tree in $group $group/node$node; do
		cat /sys/fs/cgroup/cpuset/cpuset.cpus >"/sys/fs/cgroup/cpuset/$tree/cpuset.cpus"
		cat /sys/fs/cgroup/cpuset/cpuset.mems >"/sys/fs/cgroup/cpuset/$tree/cpuset.mems"
	done
}

certificates() {
	mkdir -m 700 "$run/pki"
	(
		cd "$run/pki"
		openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=authority -keyout ca.key -out ca.crt
		issue() { # NAME SUBJECT ALTERNATIVES
			openssl req -newkey rsa:2048 -nodes -subj "/CN=$2" -keyout "$1.key" -out "$1.csr"
			openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" -extfile <(echo "subjectAltName=$3")
		}
		issue api kube-apiserver "IP:$lan.1,IP:127.0.0.1,IP:$services.0.1,DNS:kubernetes.default.svc"
		issue postgresql postgresql DNS:postgresql.databases.svc
		openssl genrsa -out sa.key 2048
		for user in admin node1 node2; do echo "$(openssl rand -hex 16),$user,$user,system:masters"; done >tokens
	) 2>"$run/pki/log"
}

kubeconfig() {
	cat <<-E
		apiVersion: v1
		kind: Config
		current-context: c
		clusters: [{name: c, cluster: {server: "https://$lan.1:6443", certificate-authority: $run/pki/ca.crt}}]
		users: [{name: u, user: {token: $(grep ",$1," "$run/pki/tokens" | cut -d, -f1)}}]
		contexts: [{name: c, context: {cluster: c, user: u}}]
	E
}

control_plane() {
	start 1 etcd etcd --data-dir "$run/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
		--listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync
	start 1 apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 --bind-address 0.0.0.0 --advertise-address $lan.1 --secure-port 6443 \
		--tls-cert-file "$run/pki/api.crt" --tls-private-key-file "$run/pki/api.key" --service-account-key-file "$run/pki/sa.key" \
		--service-account-signing-key-file "$run/pki/sa.key" --service-account-issuer https://kubernetes.default.svc --service-cluster-ip-range $services.0.0/16 \
		--token-auth-file "$run/pki/tokens" --authorization-mode RBAC --allow-privileged --kubelet-preferred-address-types InternalIP
	kubeconfig admin >"$run/kubeconfig"
	until_ok 240 within 1 kubectl get --raw /readyz
	start 1 controller-manager kube-controller-manager --kubeconfig "$run/kubeconfig" --service-account-private-key-file "$run/pki/sa.key" \
		--root-ca-file "$run/pki/ca.crt" --leader-elect=false --cluster-cidr $pods.0.0/16 --allocate-node-cidrs=false
	start 1 scheduler kube-scheduler --kubeconfig "$run/kubeconfig" --leader-elect=false
}

container_runtime() {
	local node=$1 here=$run/node$1 image
	cat >"$here/cni/10-pods.conflist" <<-E
		{"cniVersion": "0.4.0", "name": "pods", "plugins": [
		  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
		   "ipam": {"type": "host-local", "dataDir": "$here/ipam", "ranges": [[{"subnet": "$pods.$node.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
		  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	E
	cat >"$here/containerd.toml" <<-E
		version = 2
		root = "$here/containerd"
		state = "$here/run/containerd"
		[grpc]
		  address = "$here/run/containerd.sock"
		[plugins."io.containerd.grpc.v1.cri"]
		  restrict_oom_score_adj = true
		  sandbox_image = "docker.io/local/pause:1"
		  [plugins."io.containerd.grpc.v1.cri".cni]
		    bin_dir = "/usr/lib/cni"
		    conf_dir = "$here/cni"
		  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
		    runtime_type = "io.containerd.runc.v2"
		    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
		      SystemdCgroup = false
	E
	start "$node" containerd containerd -c "$here/containerd.toml"
	until_ok 60 within "$node" ctr -a "$here/run/containerd.sock" version
	for image in "$dir"/images/*.tar "$run"/images/*.tar; do
		within "$node" ctr -a "$here/run/containerd.sock" -n k8s.io images import --all-platforms "$image" >/dev/null
	done
}

node() {
	local node=$1 here=$run/node$1
	control_groups "$node"
	container_runtime "$node"
	kubeconfig "node$node" >"$here/kubeconfig"
	echo "nameserver $lan.254" >"$run/resolv.conf"
	cat >"$here/kubelet.yaml" <<-E
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		address: $lan.$node
		failCgroupV1: false
		failSwapOn: false
		cgroupDriver: cgroupfs
		cgroupRoot: /$group/node$node
		enforceNodeAllocatable: [pods]
		containerRuntimeEndpoint: unix://$here/run/containerd.sock
		clusterDomain: cluster.local
		clusterDNS: [$services.0.10]
		podCIDR: $pods.$node.0/24
		authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
		authorization: {mode: AlwaysAllow}
		evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
		imageGCHighThresholdPercent: 100
		imageGCLowThresholdPercent: 99
		resolvConf: $run/resolv.conf
		podLogsDir: $here/podlogs
		volumePluginDir: $here/volumeplugins
	E
	start "$node" kubelet kubelet --config "$here/kubelet.yaml" --kubeconfig "$here/kubeconfig" --root-dir "$here/kubelet" --cert-dir "$here/pki" \
		--hostname-override "node$node" --node-ip "$lan.$node"
	cat >"$here/proxy.yaml" <<-E
		apiVersion: kubeproxy.config.k8s.io/v1alpha1
		kind: KubeProxyConfiguration
		mode: iptables
		bindAddress: $lan.$node
		hostnameOverride: node$node
		clusterCIDR: $pods.0.0/16
		healthzBindAddress: 127.0.0.1:10256
		metricsBindAddress: 127.0.0.1:10249
		clientConnection: {kubeconfig: $here/kubeconfig}
		conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
	E
	start "$node" kube-proxy kube-proxy --config "$here/proxy.yaml"
}

# nats starts three servers with the accounts of deploy/nats, and one account more for those who do not log in.
nats() {
	mkdir -p "$run/nats"
	sed 's/^accounts {/accounts {\n  OPEN { jetstream: enabled, users: [ { user: open, password: open } ] }/' "$repository/deploy/nats/one-circle-of-trust.conf" >"$run/nats/accounts.conf"
	local i
	for i in 1 2 3; do
		mkdir -p "$run/nats/$i"
		cat >"$run/nats/$i.conf" <<-E
			server_name: nats-$i
			listen: $lan.1$i:4222
			jetstream { store_dir: $run/nats/$i, max_mem: 256M, max_file: 8G }
			cluster { name: nats, listen: $lan.1$i:6222, routes: [nats://$lan.11:6222, nats://$lan.12:6222, nats://$lan.13:6222] }
			no_auth_user: open
			include accounts.conf
		E
		start 1 "nats-$i" nats-server -c "$run/nats/$i.conf"
	done
}

# postgresql starts a server with TLS and passwords, and makes what the releases expect there.
postgresql() {
	local bin data=$run/postgresql
	bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
	mkdir "$data"
	cp "$run/pki/postgresql.crt" "$run/pki/postgresql.key" "$data/"
	chown -R postgres "$data"
	chmod 711 "$run"
	chmod 600 "$data/postgresql.key"
	(cd / && su postgres -c "$bin/initdb -D $data/data -A trust" >/dev/null)
	cat >>"$data/data/postgresql.conf" <<-E
		listen_addresses = '$lan.14'
		unix_socket_directories = '$data'
		ssl = on
		ssl_cert_file = '$data/postgresql.crt'
		ssl_key_file = '$data/postgresql.key'
	E
	printf 'local all postgres trust\nhostssl all all 10.0.0.0/8 scram-sha-256\n' >"$data/data/pg_hba.conf"
	start 1 postgresql sh -c "cd /; exec su postgres -c 'exec $bin/postgres -D $data/data'"
	until_ok 60 sql postgres 'SELECT 1'
	sql postgres "CREATE ROLE rondo LOGIN PASSWORD 'pw'" 'CREATE DATABASE rondo OWNER rondo' 'CREATE DATABASE shop'
	within 1 su postgres -c "psql -q -h $data -d shop -v ON_ERROR_STOP=1" <"$repository/deploy/sql/roles.sql"
	sql shop "ALTER ROLE rondo_owner PASSWORD 'owner'" "ALTER ROLE rondo_run PASSWORD 'run'" \
		'ALTER DEFAULT PRIVILEGES FOR ROLE rondo_owner GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO rondo_run'
}

# sql DATABASE STATEMENT...
sql() {
	local database=$1 statement
	shift
	for statement in "$@"; do
		within 1 su postgres -c "cd /; psql -q -h $run/postgresql -d $database -v ON_ERROR_STOP=1" <<<"$statement"
	done
}

up() {
	certificates
	nats
	postgresql
	control_plane
	node 1
	node 2
	within 1 kubectl apply -f "$here/system.yaml" >/dev/null
	until_ok 240 within 1 sh -c '[ "$(kubectl get nodes --no-headers | grep -cw Ready)" = 2 ]'
	within 1 kubectl -n kube-system rollout status deployment/coredns --timeout 240s >/dev/null
}
