"""Names that confluent_kafka keeps to itself, by their spelling or by not exporting them, and that Calve uses.

Its documentation has all of them. A release may drop one all the same;
`tests/unit/kafka/test_compat.py` then says which.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from confluent_kafka import KafkaError, admin

# Documented where they are, and imported there without being exported.
AclOperation = admin.AclOperation
AlterConfigOpType = admin.AlterConfigOpType
ConfigEntry = admin.ConfigEntry
ConfigResource = admin.ConfigResource
ConfigSource = admin.ConfigSource
DescribeClusterResult = admin.DescribeClusterResult
NewPartitions = admin.NewPartitions
NewTopic = admin.NewTopic
OffsetSpec = admin.OffsetSpec
ResourceType = admin.ResourceType

# Errors of the client itself, which no broker sends: librdkafka begins their names with an underscore.
ALL_BROKERS_DOWN = KafkaError._ALL_BROKERS_DOWN
AUTHENTICATION = KafkaError._AUTHENTICATION
AUTO_OFFSET_RESET = KafkaError._AUTO_OFFSET_RESET
FATAL = KafkaError._FATAL
INVALID_ARG = KafkaError._INVALID_ARG
NOENT = KafkaError._NOENT
PARTITION_EOF = KafkaError._PARTITION_EOF
SSL = KafkaError._SSL
STATE = KafkaError._STATE
TIMED_OUT = KafkaError._TIMED_OUT
TRANSPORT = KafkaError._TRANSPORT
