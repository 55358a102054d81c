# The steps of run.sh, one function for each release.

failed=0
steps=0
loading=

# step TEXT COMMAND...: does it, and prints whether it went well. What it printed is shown if it did not.
step() {
	local text=$1 log=$run/step.log began=$SECONDS state=ok
	shift
	steps=$((steps + 1))
	mkdir -p "$run"
	# In a condition, bash would go on after an error.
	set +e
	(set -e; "$@") >"$log" 2>&1
	[ $? = 0 ] || state=FAILED
	set -e
	printf '%-6s %4d s  %s\n' $state $((SECONDS - began)) "$text"
	grep '^| ' "$log" || true
	[ $state = ok ] || { failed=$((failed + 1)); sed 's/^/        /' "$log" | tail -60; }
}

finish() {
	echo "$((steps - failed)) passed, $failed failed; $SECONDS s, load of the machine $(cut -d' ' -f1-3 /proc/loadavg)"
	[ $failed = 0 ]
	exit
}

k() { within 1 kubectl -n "$namespace" "$@"; }
rollout() { for d in $(k get deployment -o name); do k rollout status "$d" --timeout 5m; done; }
images="--set image.repository=me/rondo,image.tag=v1"

# say prints a line that is shown also when the step went well.
say() { echo "| $*"; }

# pods COMPONENT [FORMAT]: the names of those that are running and are not being ended, oldest first; or something else of them.
pods() {
	local format=${2:-}
	[ -n "$format" ] || format='pod/{{.metadata.name}}'
	k get pods -l "app.kubernetes.io/component=$1" --field-selector status.phase=Running --sort-by .metadata.creationTimestamp \
		-o go-template='{{range .items}}{{if not .metadata.deletionTimestamp}}'"$format"'{{"\n"}}{{end}}{{end}}'
}

# load_begins FLAGS...: starts orders from now on.
load_begins() {
	within 1 bash -c 'setsid nohup "$@" >'"$run/load.log"' 2>&1; echo "exit $?" >>'"$run/load.log" _ \
		"$run/bin/load" -nats "nats://$lan.11:4222,nats://$lan.12:4222,nats://$lan.13:4222" -rate 10 -prefix "load-$namespace" "$@" &
	sleep 3
	! grep -q exit "$run/load.log" || { cat "$run/load.log"; return 1; }
}

# load_ends waits until all orders have ended that were started. None may be lost.
load_ends() {
	within 1 pkill -TERM -f "^$run/bin/load " # in the namespace of node 1 are only processes of the cluster
	until_ok 400 grep -q '^exit' "$run/load.log"
	sed 's/^/| /' "$run/load.log"
	grep -q '^exit 0' "$run/load.log"
}

# helm_test runs the test of the release, which has to start an order of its own each time.
helm_test() {
	local helm=$1 release=$2 uid out
	out=$(within 1 "$helm" test "$release" -n "$namespace" --logs --timeout 4m)
	echo "$out"
	uid=$(k get pod "${3:-$release}-test" -o jsonpath='{.metadata.uid}')
	grep -q "helm-test-$namespace-$release-$uid" <<<"$out"
	[ "$uid" != "$(cat "$run/uid-$namespace" 2>/dev/null)" ]
	echo "$uid" >"$run/uid-$namespace"
}

kill_processes() {
	local what node pid killed=0
	for what in orchestrator worker; do
		for node in 1 2; do # the namespaces of a node have no processes but its own
			pid=$(within $node pgrep -o -f "^/usr/local/bin/rondo $what" || true)
			[ -n "$pid" ] || continue
			within $node kill -9 "$pid"
			killed=$((killed + 1))
			break
		done
	done
	[ $killed = 2 ]
	sleep 5
	rollout
}

delete_pods() {
	k delete --force --grace-period=0 "$(pods orchestrator | head -1)" "$(pods worker | head -1)"
	sleep 3
	rollout
}

drain() {
	within 1 kubectl drain node2 --ignore-daemonsets --delete-emptydir-data --timeout 5m
	[ -z "$(k get pods --field-selector spec.nodeName=node2,status.phase=Running -o name | grep -v -- -test)" ]
	within 1 kubectl uncordon node2
	rollout
}

# spread replaces all Pods, and looks whether those of each kind are on both nodes, which have no zone.
spread() {
	k rollout restart deployment
	rollout
	local what
	for what in orchestrator worker; do
		[ "$(pods "$what" '{{.spec.nodeName}}' | sort -u | wc -l)" = 2 ] ||
			{ k get pods -o wide; return 1; }
	done
}

# warned makes sure that Pods started with another number of partitions in their settings than the streams have.
warned() {
	local pod log
	for pod in $(pods orchestrator) $(pods worker); do
		log=$(k logs "$pod")
		grep -q 'another number of partitions' <<<"$log" || { echo "$pod has not warned: $log"; return 1; }
	done
	grep -m 1 'another number of partitions' <<<"$log" | sed 's/^/| /'
}

# watch_replicas DEPLOYMENT COMMAND...: the number that a Deployment is to have, while something happens, never is less than before.
watch_replicas() {
	local deployment=$1 least watcher lowest
	shift
	least=$(k get deployment "$deployment" -o jsonpath='{.spec.replicas}')
	within 1 kubectl -n "$namespace" get deployment "$deployment" -w -o jsonpath='{.spec.replicas}{"\n"}' >"$run/replicas" &
	watcher=$!
	"$@"
	sleep 40 # the autoscaler looks each 15 s
	within 1 pkill -f "get deployment $deployment -w"
	wait $watcher || true
	lowest=$(sort -n "$run/replicas" | head -1)
	say "replicas of $deployment, wanted: $(uniq "$run/replicas" | tr '\n' ' ')"
	[ "$lowest" -ge "$least" ]
}

doctor() { # POD FLAGS...
	local pod=$1
	shift
	k exec "$pod" -- rondo doctor "$@"
}

check() {
	local out
	out=$(k exec "$1" -- rondo check "${@:2}")
	sed 's/^/| /' <<<"$out"
	grep -q 'nothing is wrong' <<<"$out"
}

# left NAMES...: what is there after an uninstallation is exactly this, beside what every namespace has.
left() {
	local there
	there=$(k get all,configmap,secret,serviceaccount,networkpolicy,poddisruptionbudget,horizontalpodautoscaler -o name |
		grep -vE '^(configmap/kube-root-ca.crt|serviceaccount/default)$|^secret/' | sort | tr '\n' ' ')
	echo "there is: $there"
	[ "$there" = "$(printf '%s\n' "$@" | sort | tr '\n' ' ')" ]
}

# minimal is the release of the chart's README, with Helm 4.
minimal() {
	namespace=rondo
	values="-n rondo --values $chart/examples/minimal.yaml $images"
	more=
	set_database() {
		k create secret generic rondo-database --from-literal=url='postgres://rondo:pw@postgresql.databases.svc:5432/rondo?sslmode=require'
	}
	install() { within 1 helm upgrade --install rondo "$chart" $values $more --wait "$@"; }

	without_secret() { # Helm gives up, the Job goes on when the Secret comes, and nothing that it needs has gone
		! install --timeout 20s || return 1
		k get serviceaccount rondo-migrate
		set_database
		k wait --for condition=complete job/rondo-migrate --timeout 4m
	}
	step 'Helm 4: an installation without its Secret fails, and its migration ends well once the Secret is there' without_secret
	step 'helm upgrade --install, as the README says' install --timeout 6m
	step 'helm test' helm_test helm rondo
	step 'helm test, once more' helm_test helm rondo
	step 'rondo doctor in a Pod' doctor deployment/rondo-orchestrator
	step 'the load begins: 10 orders a second' load_begins
	more='--set settings.keep-ended=30d,streams.partitions=10'
	step 'upgrade with other settings, which replaces all Pods, and 10 partitions' install --timeout 6m
	step 'rollout restart; Pods of each kind are on both nodes, which have no zone' spread
	step 'kill -9 of an orchestrator and a worker' kill_processes
	step 'delete an orchestrator and a worker by force' delete_pods
	more+=' --set orchestrator.replicas=3,workers.pools.default.replicas=3'
	step 'scale by helm upgrade: 3 orchestrators, 3 workers' install --timeout 6m
	step 'drain a node, with --delete-emptydir-data' drain

	by_kubectl() { # Helm refuses, and says which flag helps
		k scale deployment/rondo-orchestrator --replicas 2
		! install --timeout 6m || return 1
		install --timeout 6m --force-conflicts
		[ "$(k get deployment rondo-orchestrator -o jsonpath='{.spec.replicas}')" = 3 ]
	}
	step 'kubectl scale; helm upgrade refuses until --force-conflicts' by_kubectl
	local fixed=$more
	more+=' --set workers.defaults.autoscaling.hpa.enabled=true,workers.defaults.autoscaling.hpa.minReplicas=4'
	step 'turn the HPA on: the pool never is smaller' watch_replicas rondo-worker-default install --timeout 6m
	more+=' --set settings.keep-executions=3'
	step 'upgrade with the HPA on: the pool never is smaller' watch_replicas rondo-worker-default install --timeout 6m
	more=$fixed
	step 'turn the HPA off, with --force-conflicts' install --timeout 6m --force-conflicts

	local before
	before=$(within 1 helm history rondo -n rondo -o json | grep -o '"revision":[0-9]*' | tail -1 | cut -d: -f2)
	more+=' --set streams.partitions=12'
	step 'upgrade to 12 partitions' install --timeout 6m
	back() {
		within 1 helm rollback rondo "$before" -n rondo --wait --timeout 6m
		delete_pods
		warned
	}
	step 'helm rollback over the change of partitions, and Pods restart, with a warning' back
	step 'the load ends: each order was completed' load_ends
	step 'helm test after the rollback' helm_test helm rondo

	again() {
		within 1 helm uninstall rondo -n rondo --wait
		k wait --for delete pod -l app.kubernetes.io/component=orchestrator --timeout 2m
		k wait --for delete pod -l app.kubernetes.io/component=worker --timeout 2m
		left pod/rondo-test serviceaccount/rondo-migrate
		install --timeout 6m
	}
	step 'uninstall: what stays is what the page says; install again' again
	step 'helm test of the new installation' helm_test helm rondo
	step 'rondo check: nothing is wrong with any history' check deployment/rondo-orchestrator
}

# production is a release with users, roles and TLS, with Helm 3.
production() {
	namespace=shop
	values="-n shop --values $here/values.yaml $images"
	more=
	install() { within 1 helm3 upgrade --install shop "$chart" $values $more --wait "$@"; }
	local worker=shop-rondo-worker-default orchestrator=shop-rondo-orchestrator

	secrets() {
		local user
		for user in setup orchestrator worker client; do
			k create secret generic "shop-nats-$user" --from-literal=user=$user --from-literal=password=$user
		done
		k create secret generic shop-database-run --from-literal=password=run
		k create secret generic shop-database-owner --from-literal=password=owner
		k create configmap postgresql-ca --from-file=ca.crt="$run/pki/ca.crt"
		printf 'callers: [{name: shop, token_sha256: [%s], allow: [{queues: ["*"], permissions: ["*"]}]}]\n' "$(printf shop-token | sha256sum | cut -d' ' -f1)" >"$run/access.yaml"
		k create secret generic shop-jobs-access --from-file=access.yaml="$run/access.yaml"
	}
	step 'Helm 3: Secrets of a release with users, roles and TLS' secrets
	step 'install it' install --timeout 6m
	step 'helm test' helm_test helm3 shop shop-rondo
	queues() {
		local at
		at=$(k get service shop-rondo-queues -o jsonpath='{.spec.clusterIP}'):8000
		[ "$(within 1 curl -s -o /dev/null -w '%{http_code}' "http://$at/queues")" = 401 ]
		[ "$(within 1 curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer shop-token' "http://$at/queues")" = 200 ]
	}
	step 'queues at the address of their Service: 401 without a token, 200 with one' queues
	may_not_ask() { # it is no sign of a sick system
		local out
		for user in $orchestrator $worker; do
			out=$(doctor "deployment/$user")
			echo "$out"
			grep -q 'this user may not ask' <<<"$out"
			! grep -q '^bad' <<<"$out"
		done
	}
	step 'rondo doctor in Pods whose users may not ask says so' may_not_ask
	as_client() { within 1 "$run/bin/rondo" doctor --nats "nats://$lan.11:4222" --nats-user client --nats-password client --nats-inbox-prefix _INBOX_client; }
	step 'rondo doctor with the user of clients' as_client
	step 'the load begins: 10 orders a second' load_begins -user client -password client -inbox-prefix _INBOX_client
	more='--set workers.pools.default.replicas=3'
	step 'scale by helm upgrade: 3 workers' install --timeout 6m
	local fixed=$more
	more+=' --set workers.defaults.autoscaling.hpa.enabled=true,workers.defaults.autoscaling.hpa.minReplicas=3'
	step 'turn the HPA on: the pool never is smaller' watch_replicas $worker install --timeout 6m
	more+=' --set settings.keep-executions=3'
	step 'upgrade with the HPA on: the pool never is smaller' watch_replicas $worker install --timeout 6m
	more="$fixed --set orchestrator.replicas=3,streams.partitions=24"
	step 'turn the HPA off; 3 orchestrators, 24 partitions' install --timeout 6m
	password() { # as the README says
		sql shop "ALTER ROLE rondo_run PASSWORD 'run2'"
		k create secret generic shop-database-run --from-literal=password=run2 --dry-run=client -o yaml | k apply -f -
		k rollout restart deployment
		rollout
	}
	step 'another password of the database, and rollout restart' password
	back() {
		within 1 helm3 rollback shop 1 -n shop --wait --timeout 6m
		delete_pods
		warned
	}
	step 'helm rollback to the first revision: 12 partitions, 2 of each; Pods restart, with a warning' back
	step 'kill -9 of an orchestrator and a worker' kill_processes
	step 'the load ends: each order was completed' load_ends
	step 'helm test after the rollback' helm_test helm3 shop shop-rondo
	step 'rondo check: nothing is wrong with any history' check deployment/$orchestrator
	gone() {
		within 1 helm3 uninstall shop -n shop --wait
		k wait --for delete pod -l app.kubernetes.io/component=worker --timeout 2m
		left pod/shop-rondo-test serviceaccount/shop-rondo-migrate configmap/postgresql-ca
	}
	step 'uninstall: what stays is what the page says' gone
}
