package daemon

import (
	"errors"
	"fmt"
	"slices"
)

// reload takes over what a new configuration changes, all of it or nothing.
func (r *runner) reload() {
	r.notify.reloading()
	defer func() { r.notify.ready("serving") }()
	changed, err := r.tryReload()
	switch bad := (*ConfigError)(nil); {
	case errors.As(err, &bad):
		for _, p := range bad.Problems {
			r.log.Error("the new configuration is refused, and everything stays as it was", "problem", p)
		}
	case err != nil:
		r.log.Error("the new configuration is refused, and everything stays as it was", "error", err)
	case len(changed) == 0:
		r.log.Info("the configuration was read again, and nothing has changed")
	default:
		r.log.Info("the new configuration is in force", "changed", changed)
		for _, h := range r.config.Hints() {
			if h.Key == "max-connections" { // there are not as many descriptors
				r.log.Warn(h.Text, "setting", h.Key)
			}
		}
	}
}

// tryReload returns the settings that have changed. After an error nothing has.
func (r *runner) tryReload() (changed []string, err error) {
	if r.o.Reload == nil {
		return nil, errors.New("this daemon was started without a way to read its configuration again")
	}
	c, err := r.o.Reload()
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var refused []string
	if c.httpKey.reveal() != r.config.httpKey.reveal() {
		refused = append(refused, "the key of HTTP is another one: that needs a restart")
	}
	if c.respPassword.reveal() != r.config.respPassword.reveal() {
		refused = append(refused, "the password of resp is another one: that needs a restart")
	}
	for _, s := range settings {
		before, after := s.texts(r.config), s.texts(c)
		if slices.Equal(before, after) {
			continue
		}
		changed = append(changed, s.key)
		if !s.reloads {
			refused = append(refused, fmt.Sprintf("%s is %q now, and %q in the new one: that needs a restart",
				s.key, before, after))
		}
	}
	if len(refused) > 0 {
		return nil, &ConfigError{refused}
	}
	if err := r.server.SetLimits(c.limits()); err != nil {
		return nil, err
	}
	r.levels.setQuotas(c)
	r.level.Set(logLevel(c.LogLevel))
	r.config = c
	return changed, nil
}
