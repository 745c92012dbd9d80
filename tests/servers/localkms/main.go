// local-kms (github.com/nsmithuk/local-kms) on 127.0.0.1, which its own command cannot be told, and with rotation on demand:
// POST /rotate?key=ARN gives a symmetric key a new backing key. Arguments: the folder of the database, the port.
package main

import (
	"crypto/rand"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/nsmithuk/local-kms/src"
	"github.com/nsmithuk/local-kms/src/cmk"
	"github.com/nsmithuk/local-kms/src/config"
	"github.com/nsmithuk/local-kms/src/data"
)

func main() {
	config.AWSAccountId, config.AWSRegion, config.DatabasePath = "111122223333", "us-east-1", os.Args[1]
	database := data.NewDatabase(config.DatabasePath)
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { src.HandleRequest(w, r, database) })
	http.HandleFunc("/rotate", func(w http.ResponseWriter, r *http.Request) {
		if err := rotate(database, r.FormValue("key")); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}

func rotate(database *data.Database, arn string) error {
	key, err := database.LoadKey(arn)
	if err != nil {
		return err
	}
	symmetric, ok := key.(*cmk.AesKey)
	if !ok {
		return fmt.Errorf("%s is no symmetric key", arn)
	}
	var backing [32]byte
	if _, err := rand.Read(backing[:]); err != nil {
		return err
	}
	symmetric.BackingKeys = append(symmetric.BackingKeys, backing)
	return database.SaveKey(symmetric)
}
