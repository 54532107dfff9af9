package objects

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cri"
)

const (
	// classAge is how old what is known of a runtime class is at most, if the API server answers.
	classAge = time.Minute
	// maxClasses is how many runtime classes are known at once.
	maxClasses = 256
)

// classes are the handlers of runtime classes that were asked for. The zero value is ready.
type classes struct {
	mu   sync.Mutex
	kept map[string]class
}

type class struct {
	handler string
	read    time.Time
}

// RuntimeHandler is the runtime handler that a runtime class names. While the API server is away it
// is the one that was known last. The error of a class that does not exist is a *cri.ObjectError.
func (o *Objects) RuntimeHandler(ctx context.Context, name string) (string, error) {
	known, ok := o.classes.get(name)
	if ok && time.Since(known.read) < classAge {
		return known.handler, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	found, err := o.cfg.Client.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		o.classes.put(name, class{found.Handler, time.Now()})
		return found.Handler, nil
	case apierrors.IsNotFound(err):
		o.classes.drop(name)
		return "", &cri.ObjectError{Err: fmt.Errorf("RuntimeClass %q not found", name)}
	case ok:
		return known.handler, nil
	default:
		return "", &cri.ObjectError{Err: fmt.Errorf("read RuntimeClass %q: %w", name, err)}
	}
}

func (c *classes) get(name string) (class, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.kept[name]
	return found, ok
}

func (c *classes) put(name string, found class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil || len(c.kept) >= maxClasses { // those in use are soon known again
		c.kept = map[string]class{}
	}
	c.kept[name] = found
}

func (c *classes) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, name)
}
