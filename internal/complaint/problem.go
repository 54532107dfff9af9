package complaint

// Problem describes a problem, which the node lists while it lasts. Each is reported once, and again only if its
// cause changes. A name has at most one problem: a report replaces the one before, and a report
// without a message ends it.
type Problem struct {
	// Source is where it was found: a source of pods, or a kind of plugin.
	Source string `json:"source"`
	// Name is the file, the URL (with the index of the pod in a list), the pod's full name, or the plugin.
	Name   string `json:"name"`
	Reason string `json:"reason"`
	// Message is one line.
	Message string `json:"message"`
}
