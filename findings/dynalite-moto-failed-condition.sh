#!/bin/sh
# dynalite 4.0.0, moto 5.2.5, boto3 1.44.8
#
# dynalite accepts ReturnValuesOnConditionCheckFailure=ALL_OLD in PutItem and answers
# a failed condition without the item; moto answers with it.
#
# The error is the same ConditionalCheckFailedException with status 400 in both, so
# that code which claims a key and then looks at who has it finds no Item where one
# must be: the condition has failed because the item exists.
#
# dynalite is strict with what it knows: a misspelt value of ReturnValues is a
# ValidationException. A parameter that it does not know is passed over, although a
# client that sends it depends on it.
#
# Needs Python 3 with pip, Node.js with npm.
. "$(dirname "$0")/lib.sh"

python_with "moto[server]==5.2.5" boto3==1.44.8
npm install --silent --no-audit --no-fund --ignore-scripts dynalite@4.0.0 >&2
export DYNALITE="$(free_port)"
node node_modules/dynalite/cli.js --host 127.0.0.1 --port "$DYNALITE" --createTableMs 0 >dynalite.log 2>&1 &
servers="$servers $!:TERM"
eventually listens "$DYNALITE"

python3 - <<'PYTHON'
import logging, os, sys, boto3
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
moto.start()


def failed(port):
    """The answers to a condition that fails, and to a misspelt ReturnValues."""
    db = boto3.client("dynamodb", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
                      aws_access_key_id="x", aws_secret_access_key="x")
    db.create_table(TableName="claims", KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                    AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}], BillingMode="PAY_PER_REQUEST")
    db.get_waiter("table_exists").wait(TableName="claims", WaiterConfig={"Delay": 1})
    item = {"id": {"S": "a"}, "owner": {"S": "first"}}
    db.put_item(TableName="claims", Item=item)
    answers = []
    for options in ({"ConditionExpression": "attribute_not_exists(id)", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"},
                    {"ReturnValues": "ALL_OLDER"}):
        try:
            db.put_item(TableName="claims", Item=item, **options)
        except ClientError as error:
            answers.append((error.response["Error"]["Code"], error.response.get("Item")))
    return answers


seen = {"dynalite": failed(os.environ["DYNALITE"]), "moto": failed(moto.get_host_and_port()[1])}
moto.stop()
for name, answers in seen.items():
    print(name, *answers)
code = "ConditionalCheckFailedException"
sys.exit(not (seen["dynalite"] == [(code, None), ("ValidationException", None)]
              and seen["moto"][0] == (code, {"id": {"S": "a"}, "owner": {"S": "first"}})))
PYTHON
