package invocation

import "regexp"

// Place is where the program runs, which decides how a person types a command
// of ours. Outside of a service's own place a command would lack the service's
// credentials, user and state.
type Place uint8

// The places.
const (
	// Shell is wherever a person, or anything unknown, started the program: a
	// command is typed there as is.
	Shell Place = iota
	Container
	Kubernetes
	Systemd
)

// PlaceOf tells the place by a process's environment, its id and its parent's.
// Only a container's first process, and a process started by systemd itself, is
// a service: a shell in a container, or the child of another service, has the
// same environment.
func PlaceOf(getenv func(string) string, pid, parent int) Place {
	switch {
	case pid == 1 && getenv("KUBERNETES_SERVICE_HOST") != "":
		return Kubernetes
	case pid == 1:
		return Container
	case parent == 1 && getenv("INVOCATION_ID") != "":
		return Systemd
	}
	return Shell
}

// program is how a command begins there, in place of the program's name.
func (p Place) program() string {
	switch p {
	case Container:
		return compose + "cdc-outbox"
	case Kubernetes:
		return "deploy/kubernetes/verb.sh"
	case Systemd:
		return "cdc-outbox-verb"
	default:
		return "cdc-outbox"
	}
}

// podName has the name of a StatefulSet before the pod's number, or of a
// Deployment before the parts its ReplicaSet adds: the last has five characters,
// as after the parts of verb.sh and of a Job.
var podName = regexp.MustCompile(`^(.+)(?:-\d{1,4}|-[^-]+-[^-]+)$`)

// Connector is how a command names the connector, unless it is the one of the
// manifests as they are: in Kubernetes by the namespace and the Deployment or
// StatefulSet of the pod.
func (p Place) Connector(getenv func(string) string) string {
	namespace, pod := getenv("POD_NAMESPACE"), podName.FindStringSubmatch(getenv("POD_NAME"))
	if p != Kubernetes || namespace == "" || pod == nil || namespace == "cdc-outbox" && pod[1] == "cdc-outbox" {
		return ""
	}
	return " -n " + namespace + " -d " + pod[1]
}

// compose runs a verb beside a service, running or not.
const compose = "docker compose run --rm --no-deps "
