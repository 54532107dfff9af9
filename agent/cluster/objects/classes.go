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
	// classAge is the greatest age of a cached runtime class, if the API server answers.
	classAge = time.Minute
	// maxClasses is the number of cached runtime classes.
	maxClasses = 256
)

// class is the handler of a runtime class.
type class struct {
	handler string
	read    time.Time
}

// RuntimeHandler returns the handler that a runtime class names. If the API server does not answer,
// the last known handler counts. The error of a class that does not exist is a *cri.ObjectError.
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
