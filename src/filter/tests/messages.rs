use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, DictionaryArray, Int32Array, RecordBatch, StringArray, StructArray,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use prost::Message;
use prost::bytes::Bytes;

use crate::error::{Error, Result, Status};
use crate::filter::message::{
    AdvancedExtension, Argument, Cast, Declaration, Expression, ExpressionReference,
    ExtendedExpression, Extension, FieldReference, FunctionOption, Literal, NamedStruct, OrList,
    Plain, ScalarFunction, Segment, Sized, StructField, Type, expression, extension, kind, literal,
};
use crate::filter::{Filter, MOST_LEVELS, MOST_NODES};

fn encoded(kind: expression::Kind) -> Bytes {
    Expression { kind: Some(kind) }.encode_to_vec().into()
}

fn constant(kind: literal::Kind) -> Bytes {
    let kind = Some(kind);
    let literal = Literal { kind, variation: 0 };
    encoded(expression::Kind::Literal(literal.encode_to_vec().into()))
}

fn int(value: i32) -> Bytes {
    constant(literal::Kind::I32(value))
}

fn text(value: &str) -> Bytes {
    constant(literal::Kind::String(value.to_owned()))
}

fn column(path: &[i32]) -> Bytes {
    let mut direct = None;
    for &field in path.iter().rev() {
        let child = direct.map(Box::new);
        direct = Some(Segment {
            field: Some(Box::new(StructField { field, child })),
            ..Segment::default()
        });
    }
    let reference = FieldReference {
        direct,
        ..FieldReference::default()
    };
    encoded(expression::Kind::Selection(
        reference.encode_to_vec().into(),
    ))
}

fn call_with(function: u32, arguments: &[Bytes], options: &[(&str, &str)]) -> Bytes {
    let arguments = arguments
        .iter()
        .cloned()
        .map(Some)
        .map(|value| Argument { value });
    let options = options.iter().map(|(name, preference)| FunctionOption {
        name: (*name).to_owned(),
        preference: vec![(*preference).to_owned()],
    });
    let call = ScalarFunction {
        reference: function,
        arguments: arguments.collect(),
        options: options.collect(),
    };
    encoded(expression::Kind::ScalarFunction(
        call.encode_to_vec().into(),
    ))
}

fn call(function: u32, arguments: &[Bytes]) -> Bytes {
    call_with(function, arguments, &[])
}

/// A message with `expression`, whose functions are `names` by their positions.
fn message(names: &[&str], expression: Bytes) -> ExtendedExpression {
    let declared = |(anchor, name): (usize, &&str)| Extension {
        kind: Some(extension::Kind::Function(Declaration {
            anchor: anchor.try_into().unwrap(),
            name: (*name).to_owned(),
            ..Declaration::default()
        })),
    };
    ExtendedExpression {
        extensions: names.iter().enumerate().map(declared).collect(),
        referred_expr: vec![ExpressionReference {
            expression: Some(expression),
            measure: None,
        }],
        ..ExtendedExpression::default()
    }
}

/// Columns `n` (3, 0, null) and `s`, and a struct `t` of `n` and `m`.
fn table() -> RecordBatch {
    let n: ArrayRef = Arc::new(Int32Array::from(vec![Some(3), Some(0), None]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["x", "y", "z"]));
    let m: ArrayRef = Arc::new(Int32Array::from(vec![7, 8, 9]));
    let field = |name| Arc::new(Field::new(name, DataType::Int32, true));
    let t = StructArray::from(vec![(field("n"), n.clone()), (field("m"), m)]);
    RecordBatch::try_from_iter([("n", n), ("s", s), ("t", Arc::new(t) as ArrayRef)]).unwrap()
}

fn parse(message: &ExtendedExpression) -> Result<Filter> {
    Filter::parse(&message.encode_to_vec(), &table().schema())
}

fn refused(message: &ExtendedExpression) -> Error {
    parse(message).unwrap_err()
}

fn evaluated(message: &ExtendedExpression) -> Result<Vec<Option<bool>>> {
    let rows = parse(message)?.evaluate(&table())?;
    Ok(rows.iter().collect())
}

#[track_caller]
fn is(error: &Error, status: Status, text: &str) {
    assert_eq!(error.status(), status, "{error}");
    assert!(error.text().contains(text), "{error}");
}

/// Promise of `parse`: the error for an unsupported form names the form.
#[test]
fn what_is_not_supported_is_named() {
    let is = |expression, text| {
        let refused = refused(&message(&["regexp_match", "equal"], expression));
        is(&refused, Status::Unsupported, text);
    };
    is(call(0, &[column(&[1]), text("x")]), "\"regexp_match\"");
    is(
        encoded(expression::Kind::Subquery(Bytes::new())),
        "subquery",
    );
    is(constant(literal::Kind::List(Bytes::new())), "list");
    is(call(1, &[column(&[0]), text("x")]), "Int32 and Utf8");
    let rounded = [("rounding", "TRUNCATE")];
    is(
        call_with(1, &[int(1), int(1)], &rounded),
        "rounding = TRUNCATE",
    );
    let typed = Argument { value: None };
    let call = ScalarFunction {
        reference: 1,
        arguments: vec![typed],
        options: Vec::new(),
    };
    is(
        encoded(expression::Kind::ScalarFunction(
            call.encode_to_vec().into(),
        )),
        "\"equal\"",
    );
}

/// Promise of `parse`: a message without a valid meaning is an invalid argument.
#[test]
fn a_message_without_meaning_is_refused() {
    let is = |message: &ExtendedExpression, text| {
        is(&refused(message), Status::InvalidArgument, text);
    };
    let yes = constant(literal::Kind::Boolean(true));
    is(&message(&[], int(1)), "Int32, not booleans");
    is(
        &message(&[], column(&[3])),
        "is 3, where there are 3 fields",
    );
    is(&message(&[], column(&[-1])), "is -1");
    is(&message(&[], column(&[])), "names no field");
    is(
        &message(&[], column(&[0, 0])),
        "\"n\", which is not a struct",
    );
    is(
        &message(&["equal"], call(0, &[int(1)])),
        "1 arguments where 2 are needed",
    );
    is(&message(&["equal"], call(5, &[])), "function number 5");
    let mut two = message(&[], yes.clone());
    two.referred_expr.extend(two.referred_expr.clone());
    is(&two, "2 expressions");
    is(&ExtendedExpression::default(), "0 expressions");
    let mut empty = message(&[], yes.clone());
    empty.referred_expr[0].expression = None;
    is(&empty, "empty");
    let mut named = message(&["is_null"], call(0, &[column(&[0])]));
    named.base_schema = Some(NamedStruct {
        names: vec!["absent".to_owned()],
        fields: None,
    });
    is(&named, "\"absent\", which the table does not have");
    let of = Some(kind::Kind::I32(Plain::default()));
    let fields = crate::filter::message::StructType {
        types: vec![Type { kind: of.clone() }, Type { kind: of }],
    };
    named.base_schema = Some(NamedStruct {
        names: vec!["n".to_owned()],
        fields: Some(fields),
    });
    is(&named, "fewer names than fields");
    let decimal = crate::filter::message::DecimalLiteral {
        value: vec![0xFF; 16].into(),
        precision: 39,
        scale: 0,
    };
    is(
        &message(&[], constant(literal::Kind::Decimal(decimal))),
        "precision 39",
    );
    let mut advanced = message(&[], yes);
    advanced.advanced_extensions = Some(AdvancedExtension {
        enhancement: Some(Bytes::new()),
    });
    assert_eq!(refused(&advanced).status(), Status::Unsupported);
}

/// `levels` negations of a column.
fn nested(levels: usize) -> Bytes {
    (0..levels).fold(call(1, &[column(&[0])]), |inner, _| call(0, &[inner]))
}

/// Promise of the module: expressions of up to 64 levels are understood, but not deeper ones.
#[test]
fn expressions_nest_in_64_levels() {
    let names = ["not", "is_null"];
    assert!(parse(&message(&names, nested(MOST_LEVELS - 2))).is_ok());
    let error = refused(&message(&names, nested(MOST_LEVELS - 1)));
    is(&error, Status::InvalidArgument, "more than 64 levels");
    // As deep as a message can be.
    let error = refused(&message(&names, nested(4000)));
    is(&error, Status::InvalidArgument, "more than 64 levels");
}

/// Promise of the module: up to 1024 expressions are understood, but not more.
#[test]
fn expressions_are_counted() {
    let yes = constant(literal::Kind::Boolean(true));
    let joined = |count| message(&["and"], call(0, &vec![yes.clone(); count]));
    assert!(parse(&joined(MOST_NODES - 1)).is_ok());
    is(
        &refused(&joined(MOST_NODES)),
        Status::InvalidArgument,
        "more than 1024",
    );
}

/// Promise of the module: literals of a list do not count as expressions.
#[test]
fn a_list_has_many_literals() {
    let list = OrList {
        value: Some(column(&[0])),
        options: (0..6000).map(int).collect(),
    };
    let list = encoded(expression::Kind::SingularOrList(
        list.encode_to_vec().into(),
    ));
    assert_eq!(
        evaluated(&message(&[], list)),
        Ok(vec![Some(true), Some(true), None])
    );
}

/// Promise of `evaluate`: a row without a result is an error with a text, unless the option says
/// that the result may wrap.
#[test]
fn what_has_no_result_is_an_error() {
    let with = |name, options: &[(&str, &str)], operand| {
        let value = call_with(0, &[column(&[0]), int(operand)], options);
        evaluated(&message(&[name, "lt"], call(1, &[value, int(0)])))
    };
    let failed = |name, options: &[(&str, &str)], operand, text| {
        is(
            &with(name, options, operand).unwrap_err(),
            Status::InvalidArgument,
            text,
        );
    };
    failed("add", &[], i32::MAX, "verflow");
    failed("multiply", &[("overflow", "ERROR")], i32::MAX, "verflow");
    failed("divide", &[], 0, "ivide by zero");
    failed("modulus", &[], 0, "ivide by zero");
    failed("divide", &[("overflow", "SILENT")], 0, "ivide by zero");
    assert_eq!(
        with("add", &[("overflow", "SILENT")], i32::MAX),
        Ok(vec![Some(true), Some(false), None])
    );
    is(
        &with("add", &[("overflow", "SATURATE")], 1).unwrap_err(),
        Status::Unsupported,
        "overflow = SATURATE",
    );
}

fn cast(to: kind::Kind, input: Bytes, failure: i32) -> Bytes {
    let cast = Cast {
        to: Some(Type { kind: Some(to) }),
        input: Some(input),
        failure,
    };
    encoded(expression::Kind::Cast(cast.encode_to_vec().into()))
}

/// Promise of the module: a value that does not fit in a cast is an error or null, as the message
/// says.
#[test]
fn a_failed_cast_is_null_or_an_error() {
    let with = |failure| {
        let number = cast(kind::Kind::I32(Plain::default()), column(&[1]), failure);
        evaluated(&message(&["is_null"], call(0, &[number])))
    };
    assert_eq!(with(1), Ok(vec![Some(true); 3]));
    for failure in [0, 2] {
        is(&with(failure).unwrap_err(), Status::InvalidArgument, "'x'");
    }
    assert_eq!(with(3).unwrap_err().status(), Status::Unsupported);
}

/// Promise of the module: the width that a message claims takes no memory.
#[test]
fn a_claimed_width_is_not_allocated() {
    let wide = || kind::Kind::FixedBinary(Sized { size: i32::MAX });
    let null = constant(literal::Kind::Null(Type { kind: Some(wide()) }));
    let rows = evaluated(&message(&["is_null"], call(0, std::slice::from_ref(&null))));
    assert_eq!(rows, Ok(vec![Some(true); 3]));
    let error = refused(&message(
        &["is_null"],
        call(0, &[cast(wide(), column(&[1]), 1)]),
    ));
    is(&error, Status::Unsupported, "cast");
}

/// Promise of the module: columns are found by the message's names, and the filter tells their
/// positions.
#[test]
fn columns_are_found_by_name() {
    let both = call(0, &[call(1, &[column(&[1])]), call(1, &[column(&[0, 0])])]);
    let mut named = message(&["or", "is_null"], both);
    let of = |kind| Type { kind: Some(kind) };
    let int = || of(kind::Kind::I32(Plain::default()));
    let structure = kind::Kind::Struct(crate::filter::message::StructType { types: vec![int()] });
    // `t` with its second field alone, before `n`.
    named.base_schema = Some(NamedStruct {
        names: ["t", "m", "n"].map(str::to_owned).into(),
        fields: Some(crate::filter::message::StructType {
            types: vec![of(structure), int()],
        }),
    });
    let filter = parse(&named).unwrap();
    assert_eq!(filter.columns(), [0, 2]);
    let rows = filter.evaluate(&table()).unwrap();
    assert_eq!(
        rows.iter().collect::<Vec<_>>(),
        [Some(false), Some(false), Some(true)]
    );
}

/// Promise of the module: of columns with one name, the one at the message's position is meant.
#[test]
fn columns_of_one_name_are_told_apart_by_position() {
    let fields = ["n", "n", "m"].map(|name| Field::new(name, DataType::Int32, true));
    let schema = Schema::new(Vec::from(fields));
    let parse = |at, names: &[&str]| {
        let mut message = message(&["is_null"], call(0, &[column(&[at])]));
        message.base_schema = Some(NamedStruct {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            fields: None,
        });
        Filter::parse(&message.encode_to_vec(), &schema)
    };
    assert_eq!(parse(1, &["n", "n"]).unwrap().columns(), [1]);
    let error = parse(2, &["m", "m", "n"]).unwrap_err();
    is(&error, Status::InvalidArgument, "several columns \"n\"");
}

/// Promise of `evaluate`: a batch of another schema is an error.
#[test]
fn a_batch_of_another_schema_is_refused() {
    let filter = parse(&message(&["gt"], call(0, &[column(&[0]), int(1)]))).unwrap();
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let other = RecordBatch::try_from_iter([("n", texts)]).unwrap();
    let error = filter.evaluate(&other).unwrap_err();
    is(&error, Status::InvalidData, "\"n\" of type Int32");
}

/// Promise of `evaluate`: each row of a large batch has its own result.
#[test]
fn a_large_batch_is_filtered_in_parts() {
    let rows = 50_000;
    let n: ArrayRef = Arc::new(
        (0..rows)
            .map(|n| (n % 7 > 0).then_some(n))
            .collect::<Int32Array>(),
    );
    let batch = RecordBatch::try_from_iter([("n", n)]).unwrap();
    let large = message(&["gte"], call(0, &[column(&[0]), int(30_000)]));
    let filter = Filter::parse(&large.encode_to_vec(), &batch.schema()).unwrap();
    let passed = filter.evaluate(&batch).unwrap();
    let expected = (0..rows).map(|n| (n % 7 > 0).then_some(n >= 30_000));
    assert!(passed.iter().eq(expected));
    let always = message(&[], constant(literal::Kind::Boolean(true)));
    let filter = Filter::parse(&always.encode_to_vec(), &batch.schema()).unwrap();
    assert_eq!(filter.apply(&batch).unwrap(), batch);
}

/// Promise of `apply`: columns that the filter does not read come through, whatever their type.
#[test]
fn other_columns_come_through() {
    let keys = Int32Array::from(vec![Some(0), None, Some(0)]);
    let values = Arc::new(StringArray::from(vec!["a"]));
    let dictionary = DictionaryArray::<Int32Type>::new(keys, values);
    let n: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let batch = [("n", n), ("d", Arc::new(dictionary) as ArrayRef)];
    let batch = RecordBatch::try_from_iter(batch).unwrap();
    let message = message(&["gte"], call(0, &[column(&[0]), int(2)]));
    let filter = Filter::parse(&message.encode_to_vec(), &batch.schema()).unwrap();
    let kept = filter.apply(&batch).unwrap();
    assert_eq!(kept.schema(), batch.schema());
    assert_eq!(kept, batch.slice(1, 2));
    assert_eq!(kept.column(0).as_primitive::<Int32Type>().values(), &[2, 3]);
}

/// Promise of `apply_to`: the columns that are asked for come alone, in their order; the filter may
/// read others.
#[test]
fn the_columns_that_are_asked_for_come_alone() {
    let column_of = |values: [i32; 3]| Arc::new(Int32Array::from(values.to_vec())) as ArrayRef;
    let columns = [("a", [1, 2, 3]), ("b", [4, 5, 6]), ("c", [7, 8, 9])];
    let columns = columns.map(|(name, values)| (name, column_of(values)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for (bound, first) in [(2, 1), (1, 0), (9, 3)] {
        let message = message(&["gte"], call(0, &[column(&[0]), int(bound)]));
        let filter = Filter::parse(&message.encode_to_vec(), &batch.schema()).unwrap();
        let kept = filter
            .apply_to(&batch, Some(&[2, 1]), &mut || Ok(()))
            .unwrap();
        let wanted = batch.project(&[2, 1]).unwrap();
        assert_eq!(kept, wanted.slice(first, 3 - first));
        assert_eq!(
            filter
                .apply_to(&batch, Some(&[]), &mut || Ok(()))
                .unwrap()
                .num_rows(),
            3 - first
        );
    }
}

/// Promise of the type: threads share a filter.
#[test]
fn a_filter_is_shared_by_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Filter>();
}
