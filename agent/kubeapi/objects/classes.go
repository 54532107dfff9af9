package objects

import (
	"context"
	"fmt"
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

// class is the handler of a runtime class that was asked for.
type class struct {
	handler string
	read    time.Time
}

// RuntimeHandler is the runtime handler that a runtime class names. While the API server is away it
// is the one that was known last. The error of a class that does not exist is a *cri.ObjectError.
func (o *Objects) RuntimeHandler(ctx context.Context, name string) (string, error) {
	kept, ok := o.classes.Get(name)
	known, _ := kept.(class)
	if ok && time.Since(known.read) < classAge {
		return known.handler, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	found, err := o.cfg.Client.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		o.classes.Add(name, class{found.Handler, time.Now()})
		return found.Handler, nil
	case apierrors.IsNotFound(err):
		o.classes.Remove(name)
		return "", &cri.ObjectError{Err: fmt.Errorf("RuntimeClass %q not found", name)}
	case ok:
		return known.handler, nil
	default:
		return "", &cri.ObjectError{Err: fmt.Errorf("read RuntimeClass %q: %w", name, err)}
	}
}
