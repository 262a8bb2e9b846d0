package setting

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"go.yaml.in/yaml/v3"
)

func TestSecretIsNeverShown(t *testing.T) {
	const value = "hunter2"
	holder := struct {
		A Secret
		B *Secret
		C []Secret
		D map[string]Secret
	}{A: value, C: []Secret{value}, D: map[string]Secret{"k": value}}
	var out []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%8.3s"} {
		out = append(out, fmt.Sprintf(verb, Secret(value)), fmt.Sprintf(verb, holder))
	}
	asJSON, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	var slogged strings.Builder
	slog.New(slog.NewTextHandler(&slogged, nil)).Info("x", "secret", Secret(value), "holder", holder)
	core, logs := observer.New(zap.InfoLevel)
	zap.New(core).Info("x", zap.Any("secret", Secret(value)), zap.Any("holder", holder), zap.Stringer("s", Secret(value)))
	for _, entry := range logs.All() {
		line, err := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()).EncodeEntry(entry.Entry, entry.Context)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, line.String())
	}
	out = append(out, string(asJSON), string(asYAML), slogged.String())
	for _, text := range out {
		if strings.Contains(text, value) || strings.Contains(text, "68756e746572") {
			t.Errorf("shown: %s", text)
		}
	}
	if Secret(value).Reveal() != value || Secret("").String() != "" {
		t.Error("Reveal or the empty secret is wrong")
	}
}
