package objects

import (
	"errors"
	"net/http"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cri"
)

// A runtime class is asked for once a minute, and known as long as the API server is away.
func TestRuntimeHandler(t *testing.T) {
	s := newServer(t)
	o := s.start(Config{})
	class := func(handler string) *nodev1.RuntimeClass {
		return &nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: handler,
		}
	}
	expect := func(when, want string) {
		t.Helper()
		if got, err := o.RuntimeHandler(t.Context(), "gvisor"); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", when, got, err, want)
		}
	}
	s.put(class("runsc"))
	expect("first", "runsc")
	s.put(class("other"))
	expect("soon", "runsc")
	if n := s.count("GET runtimeclasses//gvisor"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	age(o, "gvisor")
	expect("later", "other")
	age(o, "gvisor")
	s.cut(http.StatusForbidden)
	expect("while the API server refuses", "other")
	var lacks *cri.ObjectError
	if _, err := o.RuntimeHandler(t.Context(), "unknown"); !errors.As(err, &lacks) {
		t.Errorf("an unknown one: %v", err)
	}
	s.cut(0)
	s.remove(class("other"))
	if _, err := o.RuntimeHandler(t.Context(), "gvisor"); !errors.As(err, &lacks) ||
		err.Error() != `RuntimeClass "gvisor" not found` {
		t.Errorf("one that is gone: %v", err)
	}
}

// age has it that what is known of a class was read long ago.
func age(o *Objects, name string) {
	kept, _ := o.classes.Get(name)
	known := kept.(class)
	known.read = known.read.Add(-2 * classAge)
	o.classes.Add(name, known)
}
