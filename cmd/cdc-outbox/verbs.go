package main

// verbs lists everything the program does, in the order of the help.
func verbs() []verb {
	return []verb{
		runVerb(),
		setupVerb(),
		adoptVerb(),
		teardownVerb(),
		checkVerb(),
		statusVerb(),
		tailVerb(),
		txnListVerb(),
		txnAbortVerb(),
		healthcheckVerb(),
		versionVerb(),
	}
}

func verbNames() []string {
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	return names
}
