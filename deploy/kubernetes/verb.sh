#!/bin/sh
# Runs a verb once, in a pod of the connector's own spec, also while the connector does
# not run, as after exit code 3 or before the first start:
#
#   deploy/kubernetes/verb.sh check
#   deploy/kubernetes/verb.sh setup --accept-gap --yes
#   deploy/kubernetes/verb.sh -a cdc-outbox-admin teardown --yes
#
# -n NAMESPACE and -d NAME, of a Deployment or a fleet's StatefulSet, name another
# connector, -a SECRET an administrator's source-url. Output and exit code are the verb's; then the pod is deleted, and also if
# it does not start. A pod that runs, or whose output was not read, is left, and named.
set -euf
namespace=cdc-outbox connector=cdc-outbox admin=
usage() {
	echo "usage: $0 [-n NAMESPACE] [-d NAME] [-a SECRET] VERB [FLAG]..." >&2
	exit 2
}
while getopts n:d:a: option; do
	case $option in
	n) namespace=$OPTARG ;;
	d) connector=$OPTARG ;;
	a) admin=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage

kube() { kubectl --namespace "$namespace" "$@"; }
fail() {
	echo "$0: nothing was run: $1" >&2
	exit 1
}
end() {
	echo "$0: pod $pod $2" >&2
	exit "$1"
}
leave() { end "$1" "$2. It is left: kubectl --namespace $namespace describe pod $pod"; }
remove() { kube delete pod "$pod" --wait=false >&2; }
# give_up keeps a pod that has not started from running the verb at some later time.
give_up() {
	[ -z "$running" ] || leave "$1" "goes on with the verb"
	remove || leave "$1" "has not started, and could not be deleted: it may still run the verb"
	end "$1" "has not started $2"
}

args=
for word; do
	case $word in *[[:cntrl:]]*) fail "an argument has a line break or another control character" ;; esac
	args=$args${args:+,}\"$(printf %s "$word" | sed 's/[\\"]/\\&/g')\"
done
env=
[ -z "$admin" ] || env='{"name":"CDC_OUTBOX_SOURCE_URL","valueFrom":{"secretKeyRef":{"name":"'$admin'","key":"source-url"}}}'

spec=
for kind in deployment statefulset; do
	[ -n "$spec" ] || spec=$(kube get "$kind" "$connector" --ignore-not-found --output jsonpath='{.spec.template.spec.containers[0].name} {.spec.template.spec}') ||
		fail "the pod is made as the $kind $connector says, in namespace $namespace, and that could not be read. The cluster is that of kubectl's context $(kubectl config current-context 2>&1)"
done
[ -n "$spec" ] ||
	fail "neither a Deployment nor a StatefulSet $connector is in namespace $namespace of kubectl's context $(kubectl config current-context 2>&1), and the pod is made as it says. -d and -n name another; where the connector was deleted before its teardown, apply it again"
container=${spec%% *} spec=${spec#* }
# It has no labels of the connector, whose budget and policy are not for it, and no
# probes: a verb does not listen.
pod=$(printf '{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"%s-verb-","labels":{"app.kubernetes.io/name":"cdc-outbox-verb"}},"spec":%s}' "$connector" "$spec" |
	kubectl patch --local --filename - --type strategic --output json --patch '{"spec":{"restartPolicy":"Never","containers":[{"name":"'"$container"'",
		"args":['"$args"'],"env":['"$env"'],"livenessProbe":null,"readinessProbe":null,"startupProbe":null}]}}' |
	kube create --filename - --output jsonpath='{.metadata.name}') ||
	fail "the pod could not be made. It takes the right to create pods in namespace $namespace, and room for one more pod like the connector's in its quota"
code= running= why= said=
trap 'give_up 130 "when this was interrupted"' INT TERM HUP
echo "$0: pod $pod" >&2

# look reads of the pod its phase, the verb's exit code, since when it runs, and why it
# does not.
state='.status.containerStatuses[?(@.name=="'$container'")].state'
seen='{.status.phase}|{'$state'.terminated.exitCode}|{'$state'.running.startedAt}|'
seen=$seen'{'$state'.waiting.reason} {'$state'.waiting.message} {.status.reason} {.status.message} {.status.conditions[?(@.type=="PodScheduled")].message}'
heard=$(date +%s)
look() {
	if ! now=$(kube get pod "$pod" --ignore-not-found --output jsonpath="$seen"); then
		[ $(($(date +%s) - heard)) -lt 300 ] || leave 1 "could not be looked at for 5 minutes"
		return 0
	fi
	heard=$(date +%s)
	phase=${now%%|*} now=${now#*|}
	code=${now%%|*} now=${now#*|}
	running=${now%%|*}
	why=$(echo ${now#*|}) # without the blanks of what is not there
	case $phase,$code in
	,) end 1 "is gone: how the verb has ended is not known" ;;
	Failed, | Succeeded,) leave 1 "has ended without the verb's exit code: $why" ;;
	esac
}

late=$(($(date +%s) + 300))
while look && [ -z "$code$running" ]; do
	[ "$why" = "$said" ] || echo "$pod: $why" >&2 # CreateContainerConfigError does not pass by itself
	said=$why
	[ "$(date +%s)" -lt $late ] || give_up 1 "for 5 minutes"
	sleep 1
done
read=yes
kube logs --follow --container "$container" "$pod" || read=
while [ -z "$code" ]; do
	look
	[ -n "$code" ] || sleep 1
done
[ -n "$read" ] || leave "$code" "has ended with $code, and its output was not read to the end (kubectl --namespace $namespace logs $pod)"
remove || leave "$code" "has ended with $code, and could not be deleted"
exit "$code"
