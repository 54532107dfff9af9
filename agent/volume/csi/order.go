package csi

import (
	"cmp"
	"strings"
)

func cmpUse(a, b use) int {
	return cmp.Or(cmp.Compare(a.pod, b.pod), cmp.Compare(a.name, b.name))
}

func cmpKey(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Handle, b.Handle))
}

// escapeGlob makes a path a pattern that matches only itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
