package topology

// String returns the hint for people: "0-1 preferred", "3", "any preferred", "no node".
func (h Hint) String() string {
	s := h.Nodes.String()
	switch {
	case h.Any:
		s = "any"
	case s == "":
		s = "no node"
	}
	if h.Preferred {
		s += " preferred"
	}
	return s
}
