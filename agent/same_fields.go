package agent

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/ringcache/ringcache/serde"
)

// copySame copies the fields that two structs have in common by their names: from a struct of the library to
// its JSON form, or back. What differs are the types of fields: a number is a float64, a plain whatever the
// library has, and a text an error, which is only copied to a JSON form.
func copySame(to, from any) error {
	return convert(reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem(), "")
}

var (
	plainType = reflect.TypeFor[plain]()
	errorType = reflect.TypeFor[error]()
)

// convert sets to, which is zero; name is that of the field on the wire.
func convert(to, from reflect.Value, name string) error {
	switch t, f := to.Type(), from.Type(); {
	case t == errorType:
	case f == plainType:
		v := from.Interface().(plain).value
		if v == nil {
			return nil
		}
		x := reflect.ValueOf(v)
		if !x.Type().AssignableTo(t) {
			want := "a $tensor"
			if t == reflect.TypeFor[*serde.NDArray]() {
				want = "an $ndarray"
			}
			return fmt.Errorf("%s: want %s or null", name, want)
		}
		to.Set(x)
	case t == plainType:
		if from.Kind() != reflect.Pointer || !from.IsNil() {
			to.Set(reflect.ValueOf(plain{from.Interface()}))
		}
	case f == errorType:
		if err, _ := from.Interface().(error); err != nil {
			to.SetString(err.Error())
		}
	case f.AssignableTo(t):
		to.Set(from)
	case t.Kind() == reflect.Float64:
		to.SetFloat(from.Float())
	case t.Kind() == reflect.Struct:
		return convertFields(to, from)
	case from.IsNil():
	case t.Kind() == reflect.Pointer:
		to.Set(reflect.New(t.Elem()))
		return convert(to.Elem(), from.Elem(), name)
	case t.Kind() == reflect.Slice:
		to.Set(reflect.MakeSlice(t, from.Len(), from.Len()))
		for i := range from.Len() {
			if err := convert(to.Index(i), from.Index(i), name); err != nil {
				return err
			}
		}
	default:
		to.Set(reflect.MakeMap(t))
		for _, k := range from.MapKeys() {
			v := reflect.New(t.Elem()).Elem()
			if err := convert(v, from.MapIndex(k), name); err != nil {
				return err
			}
			to.SetMapIndex(k, v)
		}
	}
	return nil
}

func convertFields(to, from reflect.Value) error {
	for field, value := range from.Fields() {
		if other := to.FieldByName(field.Name); other.IsValid() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if err := convert(other, value, name); err != nil {
				return err
			}
		}
	}
	return nil
}
