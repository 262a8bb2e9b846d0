package orders

// customers and items are the parts of orders; taken in turn, so a run repeats.
// Their lengths are coprime, so every combination comes.
var (
	customers = []string{"Ada", "Björn", "Chiyo", "Dmitri", "Élodie"}

	items = []struct {
		name  string
		price int64 // cents
	}{
		{"espresso machine", 24900},
		{"teapot", 3450},
		{"matcha whisk (茶筅)", 1890},
		{"café filters", 420},
	}
)
