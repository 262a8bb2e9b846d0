package main

// verbs lists everything that the program does, in the order of its help.
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
