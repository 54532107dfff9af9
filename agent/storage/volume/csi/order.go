package csi

import "cmp"

func cmpUse(a, b use) int {
	return cmp.Or(cmp.Compare(a.pod, b.pod), cmp.Compare(a.name, b.name))
}

func cmpKey(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Handle, b.Handle))
}
