package identity

import (
	"cmp"
	"os"
)

// AWSName is the workload's name for people, as far as the environment has it.
func AWSName() string { return AWSSource{}.choose(new(profile)).name }

// AzureName is AWSName for Entra.
func AzureName() string {
	kind := "managed identity"
	if os.Getenv("AZURE_FEDERATED_TOKEN_FILE") != "" {
		kind = "workload identity"
	}
	return "Entra " + kind + " " + cmp.Or(os.Getenv("AZURE_CLIENT_ID"), "of the machine")
}

// GoogleName is AWSName for Google.
func GoogleName() string {
	if file := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); file != "" {
		return "Google service account of " + file
	}
	return "Google service account of the machine"
}
