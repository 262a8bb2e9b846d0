#!/bin/sh
# Runs a verb once, in a pod of the Deployment's own spec, also while the connector does
# not run, as after exit code 3 or before the first start:
#
#   deploy/kubernetes/verb.sh check
#   deploy/kubernetes/verb.sh setup --accept-gap --yes
#   deploy/kubernetes/verb.sh -a cdc-outbox-admin teardown --yes
#
# -n NAMESPACE and -d DEPLOYMENT name another connector, -a SECRET an administrator's
# source-url. Output and exit code are the verb's; then the pod is deleted.
set -eu
namespace=cdc-outbox deployment=cdc-outbox admin=
usage() {
	echo "usage: $0 [-n NAMESPACE] [-d DEPLOYMENT] [-a SECRET] VERB [FLAG]..." >&2
	exit 2
}
while getopts n:d:a: option; do
	case $option in
	n) namespace=$OPTARG ;;
	d) deployment=$OPTARG ;;
	a) admin=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
pod=$deployment-$1-$(date +%s)

args=
for word; do
	args=$args${args:+,}\"$(printf %s "$word" | sed 's/[\\"]/\\&/g')\"
done
env=
[ -z "$admin" ] || env='{"name":"CDC_OUTBOX_SOURCE_URL","valueFrom":{"secretKeyRef":{"name":"'$admin'","key":"source-url"}}}'

container=$(kubectl -n "$namespace" get deployment "$deployment" -o jsonpath='{.spec.template.spec.containers[0].name}')
spec=$(kubectl -n "$namespace" get deployment "$deployment" -o jsonpath='{.spec.template.spec}')
# It has no labels of the Deployment, whose budget and policy are not for it, and no
# probes: a verb does not listen.
printf '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","labels":{"app.kubernetes.io/name":"cdc-outbox-verb"}},"spec":%s}' "$pod" "$spec" |
	kubectl patch --local --filename - --type strategic --output json --patch '{"spec":{"restartPolicy":"Never","containers":[{"name":"'"$container"'",
		"args":['"$args"'],"env":['"$env"'],"livenessProbe":null,"readinessProbe":null,"startupProbe":null}]}}' |
	kubectl -n "$namespace" create --filename - >&2

trap 'echo "$pod is left: kubectl -n $namespace delete pod $pod" >&2; exit 130' INT TERM
state() {
	kubectl -n "$namespace" get pod "$pod" -o jsonpath='{.status.containerStatuses[?(@.name=="'"$container"'")].state'"$1"'}'
}
said=
late=$(($(date +%s) + 300))
until [ -n "$(state .running)$(state .terminated)" ]; do
	waits=$(state .waiting.reason)
	[ "$waits" = "$said" ] || echo "$pod: $waits" >&2 # CreateContainerConfigError does not pass by itself
	said=$waits
	[ "$(date +%s)" -lt $late ] || {
		echo "$pod has not started for 5 minutes, and is left: kubectl -n $namespace describe pod $pod" >&2
		exit 1
	}
	sleep 1
done
kubectl -n "$namespace" logs --follow --container "$container" "$pod"
until code=$(state .terminated.exitCode) && [ -n "$code" ]; do sleep 1; done
kubectl -n "$namespace" delete pod "$pod" --wait=false >&2
exit "$code"
