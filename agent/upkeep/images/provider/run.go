package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/numalet/numalet/internal/oneline"
)

const (
	// deadline bounds one call of a program, maxOutput its output in bytes.
	deadline, maxOutput = time.Minute, 1 << 20
	// maxReported bounds how much of a program's error output is reported.
	maxReported = 512
)

// program is the program of a provider.
type program struct {
	name, path, apiVersion string
	args, env              []string
	runs                   runs
}

// ask runs the program once.
func (p program) ask(ctx context.Context, request credentialv1.CredentialProviderRequest) (
	answer credentialv1.CredentialProviderResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	request.Kind, request.APIVersion = "CredentialProviderRequest", p.apiVersion
	text, err := json.Marshal(request)
	if err != nil {
		return answer, fmt.Errorf("encode the request: %w", err)
	}
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	out, complaint := &bounded{}, &bounded{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), out, complaint
	// Its children are killed with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	began := time.Now()
	err = cmd.Run()
	p.runs.done(p.name, began, err)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it did not answer in time: %w", ctx.Err())
		}
		return answer, fmt.Errorf("%w: %s", err, oneline.Cut(string(complaint.text), maxReported))
	}
	if out.over {
		return answer, fmt.Errorf("its answer has more than %d bytes", maxOutput)
	}
	return p.decode(out.text)
}

// decode decodes the program's output, whose content is secret.
func (p program) decode(text []byte) (answer credentialv1.CredentialProviderResponse, err error) {
	if json.Unmarshal(text, &answer) != nil {
		return answer, errors.New("its answer is not the JSON of a CredentialProviderResponse")
	}
	if answer.Kind != "CredentialProviderResponse" || answer.APIVersion != p.apiVersion {
		return answer, fmt.Errorf("it answered with a %q of %q, not a CredentialProviderResponse "+
			"of %q", oneline.Cut(answer.Kind, maxReported), oneline.Cut(answer.APIVersion, maxReported),
			p.apiVersion)
	}
	return answer, nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	text []byte
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := min(maxOutput-len(b.text), len(p))
	b.text = append(b.text, p[:room]...)
	b.over = b.over || room < len(p)
	return len(p), nil
}
