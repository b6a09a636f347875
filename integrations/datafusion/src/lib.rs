//! Tables of libdipc in DataFusion, and the shuffles of datafusion-distributed over libdipc.
