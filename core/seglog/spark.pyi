from seglog_ask.spark.library import clean as clean
from seglog_ask.spark.library import verify as verify
from seglog_ask.spark.session import Setting as Setting
from seglog_ask.spark.session import configuration as configuration
from seglog_ask.spark.session import session as session
from seglog_ask.spark.source import SeglogDataSource as SeglogDataSource
