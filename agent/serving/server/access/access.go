package access

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/route"
)

// reviewTimeout bounds how long a request waits for the API server's decision.
const reviewTimeout = 30 * time.Second

// maxBundle bounds the size of a bundle of authorities in bytes.
const maxBundle = 1 << 20

// ErrNobody reports that no request could be allowed, so a server would be useless.
var ErrNobody = errors.New("nobody could be allowed to ask")

// Config says who decides on requests.
type Config struct {
	// Node is the name of the node that the requests are about.
	Node           string
	Authentication kubeletv1beta1.KubeletAuthentication
	Authorization  kubeletv1beta1.KubeletAuthorization
	// Reviewer is the API server; nil: there is none.
	Reviewer Reviewer
}

// Reviewer is an API server that identifies tokens and decides who may do what;
// kubernetes.Interface implements it.
type Reviewer interface {
	AuthenticationV1() authentication.AuthenticationV1Interface
	AuthorizationV1() authorization.AuthorizationV1Interface
}

// Access decides who may make a request.
type Access struct {
	node string
	// nil: certificates of clients are not accepted
	clientCAs *dynamiccertificates.DynamicFileCAContent
	who       authenticator.Request
	may       authorizer.Authorizer
	// asking has one question at a time for the same right of the same user. A caller may give up; the
	// answer is still found out and remembered, until alive ends.
	asking singleflight.Group
	alive  context.Context
	end    context.CancelFunc
}

// New returns ErrNobody, with what to change, if the configuration leaves all decisions to an API
// server and there is none.
func New(c Config) (*Access, error) {
	if why := nobody(c); why != "" {
		return nil, fmt.Errorf("%w: %s", ErrNobody, why)
	}
	a := &Access{node: c.Node}
	a.alive, a.end = context.WithCancel(context.Background())
	var err error
	if a.may, err = newAuthorizer(c); err != nil {
		return nil, fmt.Errorf("set up authorization: %w", err)
	}
	if file := c.Authentication.X509.ClientCAFile; file != "" {
		if a.clientCAs, err = bundle(file); err != nil {
			return nil, fmt.Errorf("read authentication.x509.clientCAFile (--client-ca-file) %s: %w; "+
				"name a file with the certificates, as PEM, of the authorities of your clients", file,
				err)
		}
	}
	if a.who, err = newAuthenticator(c, a.clientCAs); err != nil {
		return nil, fmt.Errorf("set up authentication: %w", err)
	}
	return a, nil
}

// bundle reads the certificates in a file and follows it. The library reads without a bound, so the
// file is checked first.
func bundle(file string) (*dynamiccertificates.DynamicFileCAContent, error) {
	raw, err := files.ReadNamed(file, maxBundle)
	if err == nil {
		_, err = cert.ParseCertsPEM(raw)
	}
	if err != nil {
		return nil, err
	}
	return dynamiccertificates.NewDynamicCAContentFromFile("client-ca", file)
}

// nobody says why no request could be allowed; "" if some could.
func nobody(c Config) string {
	if c.Authorization.Mode == kubeletv1beta1.KubeletAuthorizationModeWebhook && c.Reviewer == nil {
		return "authorization.mode is Webhook and there is no API server to ask; name one with " +
			"--kubeconfig, or set authorization.mode to AlwaysAllow with a bundle in " +
			"authentication.x509.clientCAFile"
	}
	if !*c.Authentication.Anonymous.Enabled && c.Authentication.X509.ClientCAFile == "" &&
		!reviewsTokens(c) {
		return "no one can say who they are; set authentication.x509.clientCAFile, or name an " +
			"API server with --kubeconfig and set authentication.webhook.enabled"
	}
	return ""
}

func reviewsTokens(c Config) bool { return *c.Authentication.Webhook.Enabled && c.Reviewer != nil }

func newAuthorizer(c Config) (authorizer.Authorizer, error) {
	switch c.Authorization.Mode {
	case kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case kubeletv1beta1.KubeletAuthorizationModeWebhook:
		return authorizerfactory.DelegatingAuthorizerConfig{
			SubjectAccessReviewClient: c.Reviewer.AuthorizationV1(),
			AllowCacheTTL:             c.Authorization.Webhook.CacheAuthorizedTTL.Duration,
			DenyCacheTTL:              c.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
			WebhookRetryBackoff:       retries(),
		}.New()
	default:
		return nil, fmt.Errorf("authorization.mode %q: use Webhook or AlwaysAllow",
			c.Authorization.Mode)
	}
}

func newAuthenticator(c Config, clientCAs *dynamiccertificates.DynamicFileCAContent) (
	authenticator.Request, error) {
	config := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{
			Enabled: *c.Authentication.Anonymous.Enabled,
		},
		CacheTTL:                 c.Authentication.Webhook.CacheTTL.Duration,
		WebhookRetryBackoff:      retries(),
		TokenAccessReviewTimeout: reviewTimeout,
	}
	if clientCAs != nil {
		config.ClientCertificateCAContentProvider = clientCAs
	}
	if reviewsTokens(c) {
		config.TokenAccessReviewClient = c.Reviewer.AuthenticationV1()
	}
	out, _, err := config.New()
	return out, err
}

// retries is the back-off of requests to the API server after failures.
func retries() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// Run follows the bundle of client CAs until ctx ends. Afterwards no rights are asked for.
func (a *Access) Run(ctx context.Context) error {
	defer a.end()
	if a.clientCAs == nil {
		<-ctx.Done()
		return nil
	}
	a.clientCAs.Run(klog.NewContext(ctx, klog.FromContext(ctx).WithName("client-ca")), 1)
	return nil
}

// ClientCAs returns the authorities of accepted client certificates; nil: none is accepted.
func (a *Access) ClientCAs() *x509.CertPool {
	if a.clientCAs == nil {
		return nil
	}
	options, ok := a.clientCAs.VerifyOptions()
	if !ok {
		return nil
	}
	return options.Roots
}

// Authorize passes allowed requests on to next, and answers the others.
func (a *Access) Authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, refused := a.admit(r)
		if refused != nil {
			refused.Answer(w)
			return
		}
		next.ServeHTTP(w, server.WithUser(r, user))
	})
}

// admit returns the user of a request, or the answer if the request is refused.
func (a *Access) admit(r *http.Request) (user string, refused *route.Refusal) {
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	log := klog.FromContext(ctx)
	who, ok, err := a.who.AuthenticateRequest(r.WithContext(ctx))
	if err != nil || !ok {
		if err != nil && r.Context().Err() == nil {
			log.V(2).Info("Authentication of a request failed", "path", r.URL.Path, "from", r.RemoteAddr,
				"err", err)
		}
		return "", route.Refuse(http.StatusUnauthorized, "Unauthorized")
	}
	var asked []string
	verb := ""
	for _, what := range attributes(a.node, who.User, r) {
		asked, verb = append(asked, what.GetSubresource()), what.GetVerb()
		decision, err := a.decide(what)
		if err != nil {
			log.Error(err, "Authorization of a request failed",
				"user", who.User.GetName(), "verb", verb, "subresource", what.GetSubresource())
			return "", route.Refuse(http.StatusInternalServerError,
				"Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)",
				who.User.GetName(), verb, what.GetSubresource())
		}
		if decision == authorizer.DecisionAllow {
			return who.User.GetName(), nil
		}
	}
	return "", route.Refuse(http.StatusForbidden,
		"Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n",
		who.User.GetName(), verb, asked)
}

// decide finds out whether what is asked for is allowed.
func (a *Access) decide(what authorizer.Attributes) (authorizer.Decision, error) {
	who := what.GetUser()
	question, err := json.Marshal([]any{who.GetName(), who.GetUID(), who.GetGroups(), who.GetExtra(),
		what.GetVerb(), what.GetSubresource()})
	if err != nil {
		return authorizer.DecisionDeny, err
	}
	decision, err, _ := a.asking.Do(string(question), func() (any, error) {
		ctx, cancel := context.WithTimeout(a.alive, reviewTimeout)
		defer cancel()
		decision, _, err := a.may.Authorize(ctx, what)
		return decision, err
	})
	return decision.(authorizer.Decision), err
}

// Warning returns which settings let every client do everything, or "" if none do.
func Warning(c Config) string {
	if ptr.Deref(c.Authentication.Anonymous.Enabled, false) &&
		c.Authorization.Mode == kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow {
		return "Whoever reaches this address may run commands in containers: set " +
			"authentication.anonymous.enabled (--anonymous-auth) to false and " +
			"authorization.mode (--authorization-mode) to Webhook"
	}
	return ""
}
