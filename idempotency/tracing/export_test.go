package tracing

// The attributes beside those of the semantic conventions.
const (
	DispositionKey = dispositionKey
	AttemptKey     = attemptKey
	LayerKey       = layerKey
)
