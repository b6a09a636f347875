//! Conditions that the server evaluates.

use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::*;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{DataFrame, Expr, SessionContext, col, lit};
use dipc::crossing::arrow_59::{batch_in, schema_in};
use dipc::{Error, Request, Server, Status};
use dipc_datafusion::DipcServer;

use crate::server::Serving;
use crate::{context, numbers, shown};

/// Who evaluates a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Server,
    /// Each of them.
    Both,
    Here,
}

/// `row`, and for each type a column `x0` and so on, and `y0` with the same values in another order.
pub fn types() -> RecordBatch {
    let of = |array: &ArrayRef, kinds: &[DataType]| -> Vec<ArrayRef> {
        let casts = kinds.iter().map(|kind| cast(array, kind).unwrap());
        casts.collect()
    };
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![
        Some(0),
        Some(3),
        None,
        Some(7),
        Some(3),
        Some(1),
        Some(100),
        Some(9),
    ]));
    let mut columns = of(&numbers, &NUMBERS);
    columns.extend(of(&cast(&numbers, &DataType::Int32).unwrap(), &DAYS));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![
        Some(""),
        Some("abc"),
        None,
        Some("b_d"),
        Some("abc"),
        Some("ÄB%"),
        Some("a text of more than twelve"),
        Some("zz"),
    ]));
    columns.extend(of(&texts, &TEXTS));
    columns.push(Arc::new(BooleanArray::from(vec![
        Some(true),
        Some(false),
        None,
        Some(true),
        Some(false),
        Some(true),
        Some(true),
        None,
    ])));
    let fixed = [
        Some(b"ab"),
        Some(b"cd"),
        None,
        Some(b"zz"),
        Some(b"cd"),
        Some(b"aa"),
        Some(b"ab"),
        None,
    ];
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed.into_iter(), 2);
    columns.push(Arc::new(fixed.unwrap()));
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![
        Some(0.0),
        Some(-0.0),
        None,
        Some(f64::NAN),
        Some(-f64::NAN),
        Some(f64::INFINITY),
        Some(1.5),
        Some(-2.0),
    ]));
    columns.extend(of(&floats, &FLOATS));
    let fields = Fields::from(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
    ]);
    columns.push(Arc::new(StructArray::new(
        fields,
        vec![numbers, texts],
        None,
    )));
    let lists = (0..8).map(|n| (n != 2).then(|| vec![Some(n)]));
    columns.push(Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(
        lists,
    )));

    let rows: ArrayRef = Arc::new(Int64Array::from_iter_values(0..8));
    let mut named = vec![("row".to_owned(), rows)];
    for (number, column) in columns.into_iter().enumerate() {
        let turned = [column.slice(5, 3), column.slice(0, 5)];
        let turned = concat(&[&turned[0], &turned[1]]).unwrap();
        named.push((format!("x{number}"), column));
        named.push((format!("y{number}"), turned));
    }
    RecordBatch::try_from_iter_with_nullable(named.into_iter().map(|(n, c)| (n, c, true))).unwrap()
}

const NUMBERS: [DataType; 23] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Decimal32(9, 2),
    DataType::Decimal64(18, 2),
    DataType::Decimal128(38, 3),
    DataType::Decimal256(76, 4),
    DataType::Date64,
    DataType::Time64(TimeUnit::Microsecond),
    DataType::Time64(TimeUnit::Nanosecond),
    DataType::Timestamp(TimeUnit::Second, None),
    DataType::Timestamp(TimeUnit::Millisecond, None),
    DataType::Timestamp(TimeUnit::Microsecond, None),
    DataType::Timestamp(TimeUnit::Nanosecond, None),
    DataType::Duration(TimeUnit::Second),
    DataType::Duration(TimeUnit::Millisecond),
    DataType::Duration(TimeUnit::Microsecond),
    DataType::Duration(TimeUnit::Nanosecond),
];
const DAYS: [DataType; 3] = [
    DataType::Date32,
    DataType::Time32(TimeUnit::Second),
    DataType::Time32(TimeUnit::Millisecond),
];
const TEXTS: [DataType; 6] = [
    DataType::Utf8,
    DataType::LargeUtf8,
    DataType::Utf8View,
    DataType::Binary,
    DataType::LargeBinary,
    DataType::BinaryView,
];
const FLOATS: [DataType; 3] = [DataType::Float16, DataType::Float32, DataType::Float64];

/// The table `types` of a server as `there`, and of this process as `here`.
async fn both(uri: &str) -> SessionContext {
    let context = context(uri);
    let server = DipcServer::new(uri).unwrap();
    server.register(&context, "there", "types").await.unwrap();
    context.register_batch("here", types()).unwrap();
    context
}

/// The rows of a table that pass, and who has looked.
async fn passed(context: &SessionContext, table: &str, condition: &Expr) -> Option<(Vec<i64>, By)> {
    let all = context.table(table).await.unwrap();
    let frame = all.filter(condition.clone()).ok()?;
    let frame = frame.select_columns(&["row"]).unwrap();
    answered(context, frame).await
}

async fn answered(context: &SessionContext, frame: DataFrame) -> Option<(Vec<i64>, By)> {
    let plan = frame.create_physical_plan().await.ok()?;
    let text = displayable(&*plan).indent(false).to_string();
    let by = match (text.contains(", filter="), text.contains("FilterExec")) {
        (true, false) => By::Server,
        (true, true) => By::Both,
        (false, _) => By::Here,
    };
    let batches = collect(plan, context.task_ctx()).await.ok()?;
    let rows = |batch: &RecordBatch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    let mut rows: Vec<_> = batches.iter().flat_map(rows).collect();
    rows.sort_unstable();
    Some((rows, by))
}

/// Promise of `DipcTableProvider`: comparisons of each type give what DataFusion gives, and the
/// server evaluates them. Floats are looked at again, or left to this side.
#[tokio::test]
async fn each_type_is_compared_as_in_datafusion() {
    let server = Serving::start();
    let context = both(&server.uris[0]).await;
    let table = types();
    let operators = [
        Operator::Eq,
        Operator::NotEq,
        Operator::Lt,
        Operator::LtEq,
        Operator::Gt,
        Operator::GtEq,
        Operator::IsDistinctFrom,
        Operator::IsNotDistinctFrom,
    ];
    let (mut by_server, mut wrong) = (0, Vec::new());
    for number in 0..table.num_columns() / 2 {
        let (x, y) = (format!("x{number}"), format!("y{number}"));
        let column = table.column_by_name(&x).unwrap();
        let kind = column.data_type().clone();
        let value = |row| lit(ScalarValue::try_from_array(column, row).unwrap());
        let mut conditions = vec![col(&x).is_null(), col(&x).is_not_null()];
        for operator in operators {
            let with = |right| {
                Expr::BinaryExpr(BinaryExpr::new(col(&x).into(), operator, Box::new(right)))
            };
            conditions.extend([
                with(value(1)),
                with(value(6)),
                with(value(7)),
                with(col(&y)),
            ]);
        }
        conditions.push(col(&x).between(value(1), value(6)));
        conditions.push(col(&x).not_between(value(1), value(6)));
        for negated in [false, true] {
            conditions.push(col(&x).in_list([0, 1, 3, 6, 7].map(value).into(), negated));
            conditions.push(col(&x).in_list([5, 6, 7, 2].map(value).into(), negated));
        }
        for condition in conditions {
            // Some types DataFusion itself does not compare.
            let Some((expected, _)) = passed(&context, "here", &condition).await else {
                continue;
            };
            let got = passed(&context, "there", &condition).await;
            let by = got.as_ref().map(|(_, by)| *by);
            by_server += usize::from(by == Some(By::Server));
            // What is never true is known without reading.
            let may_be_here = kind.is_nested() || kind.is_floating() || expected.is_empty();
            if got.is_none_or(|(rows, by)| rows != expected || by == By::Here && !may_be_here) {
                wrong.push(format!("{kind}: {condition}, by {by:?}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(by_server > 1000, "{by_server}");
}

/// Promise of `DipcTableProvider`: the server evaluates conditions of each kind that it knows and
/// that cannot fail, and no others.
#[tokio::test]
async fn conditions_of_each_kind() {
    let server = Serving::start();
    let context = both(&server.uris[1]).await;
    let mut wrong = Vec::new();
    // x2: int32; x3: int64; x26: utf8; x28: utf8view; x32: boolean; x36: float64; x37: struct.
    for (condition, by) in [
        ("x32", By::Server),
        ("NOT x32", By::Server),
        ("x32 IS NOT TRUE", By::Server),
        ("x32 IS FALSE AND x2 < 5 OR x2 = 100", By::Server),
        ("x32 IS UNKNOWN", By::Server),
        ("x26 LIKE 'a%c'", By::Server),
        ("x26 NOT LIKE '%\\_%'", By::Server),
        ("x28 ILIKE '%äb\\%'", By::Server),
        ("starts_with(x26, 'ab')", By::Server),
        ("ends_with(x28, 'c') OR contains(x26, '_')", By::Server),
        ("upper(x26) = 'ABC' AND lower(x28) = 'abc'", By::Server),
        ("x26 IN ('abc', 'zz', 'q', 'r', 's')", By::Server),
        ("x26 > 'a' AND x26 <> x28", By::Server),
        ("x3 + 9223372036854775807 < 0", By::Server),
        ("(x3 * 3 - 1) % 4 = 0 AND -x3 <= 0", By::Server),
        ("x3 / 3 = 1", By::Server),
        ("x2 = x3 AND x0 + x2 > 5", By::Server),
        ("coalesce(x26, 'none') = 'none'", By::Server),
        (
            "CASE WHEN x2 > 5 THEN x26 ELSE 'small' END = 'small'",
            By::Server,
        ),
        ("CASE x2 WHEN 3 THEN 1 WHEN 7 THEN 2 END = 2", By::Server),
        ("x37['n'] > 2 AND x37['s'] IS NOT NULL", By::Server),
        ("x37 IS NULL", By::Server),
        ("x38 IS NOT NULL", By::Server),
        ("isnan(x36)", By::Server),
        ("x36 > 1", By::Both),
        ("x36 <= 0 OR x2 = 7", By::Both),
        ("x36 = 0 AND x2 < 2", By::Both),
        ("x36 = 1.5", By::Server),
        ("x36 * 2 > 2.5", By::Both),
        ("x3 > 2.5", By::Both),
        ("x36 <> 0", By::Here),
        ("(x36 > 1) IS NOT TRUE", By::Here),
        // They can fail, or have no translation.
        ("x2 > 2 AND 10 / (x2 + 1) > 0", By::Both),
        ("x26 <> '' AND length(x26) = 3", By::Both),
        ("TRY_CAST(x26 AS INT) IS NULL AND x26 ~ '^.b'", By::Here),
        ("x3 * 1.5 = random()", By::Here),
        ("row = (SELECT 3)", By::Here),
    ] {
        let sql = |table: &str| format!("SELECT row FROM {table} WHERE {condition}");
        let (here, there) = (sql("here"), sql("there"));
        let frame = context.sql(&here).await.unwrap();
        let expected = answered(&context, frame).await.map(|(rows, _)| (rows, by));
        let frame = context.sql(&there).await.unwrap();
        let got = answered(&context, frame).await;
        if got.is_none() || got != expected {
            wrong.push(format!("{condition}: {got:?}, not {expected:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Promise of `DipcTableProvider`: plans show the filter, and statistics do not count the rows that
/// it drops.
#[tokio::test]
async fn plans_show_filters() {
    let server = Serving::start();
    let context = context(&server.uris[0]);
    let query = "SELECT price FROM dipc.public.prices WHERE id < 10";
    let plan = shown(&context, &format!("EXPLAIN {query}")).await;
    assert!(
        plan.contains("full_filters=[dipc.public.prices.id < Int64(10)]"),
        "{plan}"
    );
    assert!(
        plan.contains("projection=[price], filter=id@0 < 10"),
        "{plan}"
    );
    assert!(!plan.contains("FilterExec"), "{plan}");
    let plan = shown(&context, &format!("EXPLAIN FORMAT TREE {query}")).await;
    assert!(plan.contains("filter: id@0 < 10"), "{plan}");
    let ran = shown(&context, &format!("EXPLAIN ANALYZE {query}")).await;
    assert!(ran.contains("output_rows=10,"), "{ran}");
    let query = "SELECT count(*) FROM dipc.public.prices WHERE id < 10";
    assert_eq!(numbers(&context, query).await, [10]);
}

/// Promise of `DipcTableProvider`: a limit counts the rows that pass, whoever evaluates the filter.
#[tokio::test]
async fn limits_count_rows_that_pass() {
    let server = Serving::start();
    for uri in &server.uris {
        let context = context(uri);
        for (condition, is_limited) in [
            ("id >= 700", true),
            ("id >= 700 AND abs(id) >= 900", false),
            ("abs(id) >= 700", false),
            ("id > 699.5", false),
        ] {
            let query = format!("SELECT id FROM dipc.public.prices WHERE {condition} LIMIT 3");
            let plan = shown(&context, &format!("EXPLAIN {query}")).await;
            let scan = plan
                .lines()
                .find(|line| line.contains("DipcScanExec"))
                .unwrap();
            assert_eq!(scan.contains("fetch=3"), is_limited, "{plan}");
            let first = if condition.contains("900") { 900 } else { 700 };
            let rows = numbers(&context, &query).await;
            assert_eq!(rows.len(), 3, "{query}");
            assert!(rows.iter().all(|id| *id >= first), "{query}: {rows:?}");
        }
        let query = "SELECT n FROM dipc.public.parts WHERE n % 100 >= 98 LIMIT 5";
        let rows = numbers(&context, query).await;
        assert_eq!(rows.len(), 5, "{rows:?}");
        assert!(rows.iter().all(|n| n % 100 >= 98), "{rows:?}");
    }
}

/// A server that refuses requests whose selection is like this, as one of an earlier release.
fn earlier(name: &str, refuses: fn(&Request<'_>) -> bool) -> (Server, String) {
    let refuse = move |request: &Request<'_>| match refuses(request) {
        true => Err(Error::new(Status::Unsupported, "what may this be?")),
        false => Ok(()),
    };
    let server = Server::builder().authorizer(refuse).build().unwrap();
    let uri = server
        .listen(&format!("shm:@dipc-{name}-{}", std::process::id()))
        .unwrap();
    let table = types();
    let schema = Arc::new(schema_in(&table.schema()).unwrap());
    server
        .publish("types", &schema, [batch_in(table, &schema).unwrap()])
        .unwrap();
    (server, uri)
}

/// Promise of `DipcTableProvider`: of a server that knows no filters, or no selections at all, the
/// rows are those that pass, too.
#[tokio::test(flavor = "multi_thread")]
async fn servers_of_earlier_releases() {
    for (_server, uri) in [
        earlier("without-filters", |request| {
            request.selection().filter().is_some()
        }),
        earlier("without-selections", |request| {
            !request.selection().is_all()
        }),
    ] {
        let context = both(&uri).await;
        for query in [
            "SELECT row, x2 FROM there WHERE x2 > 2 ORDER BY row",
            "SELECT x26 FROM there WHERE x2 > 2 AND x26 <> 'zz' ORDER BY x26",
            "SELECT count(*) FROM there WHERE x26 = 'abc'",
            "SELECT x2 FROM there WHERE x2 > 2 AND x36 > 1 ORDER BY x2",
            "SELECT * FROM there WHERE x3 = 7",
            "SELECT row FROM there WHERE row >= 5 LIMIT 2",
            "SELECT row FROM there WHERE row >= 5 AND x36 > 1 LIMIT 1",
        ] {
            let expected = shown(&context, &query.replace("there", "here")).await;
            assert_eq!(shown(&context, query).await, expected, "{query}");
        }
    }
}

/// Promise of `DipcTableProvider`: filters that are too large for a server, alone or together, drop
/// the same rows.
#[tokio::test]
async fn filters_that_are_too_large() {
    let server = Serving::start();
    let context = context(&server.uris[0]);
    let list = |from: usize, count: usize| {
        let values: Vec<_> = (from..from + count).map(|it| it.to_string()).collect();
        format!("id IN ({})", values.join(", "))
    };
    let query = |condition: &str| format!("SELECT id FROM dipc.public.prices WHERE {condition}");
    for (condition, by_server) in [
        (list(997, 10_000), false),
        (list(997, 4_000), true),
        (
            format!(
                "{} AND id NOT IN (1, 2, 3, 4) AND {}",
                list(990, 4_000),
                list(997, 3_500)
            ),
            true,
        ),
    ] {
        let plan = shown(&context, &format!("EXPLAIN {}", query(&condition))).await;
        assert_eq!(plan.contains(", filter="), by_server, "{}", condition.len());
        let mut got = numbers(&context, &query(&condition)).await;
        got.sort_unstable();
        assert_eq!(got, [997, 998, 999], "{}", condition.len());
    }
}
