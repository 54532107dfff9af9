package csinodes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
)

// Drivers that say something have it in the status, those that are well are not there, and others stay as
// they are. What is the same is not written.
func TestWithHealth(t *testing.T) {
	is := func(name, reason, message string) storagev1.StorageHealth {
		return storagev1.StorageHealth{Name: name, HealthConditions: []storagev1.StorageHealthCondition{
			{Status: storagev1.StorageDegraded, Reason: reason, Message: message}}}
	}
	has := []storagev1.StorageHealth{is("a", "Slow", "one"), is("b", "Slow", ""), is("c", "Slow", "")}
	for name, test := range map[string]struct {
		said map[string][]storagev1.StorageHealthCondition
		want []storagev1.StorageHealth // nil: as it was
	}{
		"nothing":     {},
		"other words": {said: map[string][]storagev1.StorageHealthCondition{"a": is("a", "Slow", "two").HealthConditions}},
		"well, and never ill": {map[string][]storagev1.StorageHealthCondition{"b": nil, "e": nil},
			[]storagev1.StorageHealth{has[0], has[2]}},
		"another": {map[string][]storagev1.StorageHealthCondition{"aa": is("", "Gone", "").HealthConditions,
			"c": is("", "Gone", "").HealthConditions},
			[]storagev1.StorageHealth{has[0], is("aa", "Gone", ""), has[1], is("c", "Gone", "")}},
	} {
		got, differs := withHealth(has, test.said)
		want := test.want
		if want == nil {
			want = has
		}
		if diff := cmp.Diff(want, got); diff != "" || differs != (test.want != nil) {
			t.Errorf("%s: differs %t, -want +got:\n%s", name, differs, diff)
		}
	}
}
