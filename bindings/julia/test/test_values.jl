# Values for which Julia has no type, and views of text.

@testset "decimals" begin
    @test string(Dipc.Decimal(9, 2, 12345)) == "123.45"
    @test string(Dipc.Decimal(9, 2, -5)) == "-0.05"
    @test string(Dipc.Decimal(9, -2, 7)) == "700"
    @test Dipc.Decimal(9, 2, 100) == 1 && 1 == Dipc.Decimal(50, 0, 1)
    @test Float64(Dipc.Decimal(9, 2, 150)) === 1.5
    @test hash(Dipc.Decimal(9, 2, 150)) == hash(3 // 2)
    @test Dipc.Decimal(9, 2, 1) < Dipc.Decimal(9, 3, 11)
    for n in (0, 1, -1, big(2)^255 - 1, -big(2)^255)
        @test BigInt(Dipc.Int256(n)) == n
    end
    @test_throws InexactError Dipc.Int256(big(2)^255)
end

@testset "timestamps" begin
    t = Dipc.Timestamp{Nanosecond,:UTC}(1_000_000_001)
    @test DateTime(t) == DateTime(1970, 1, 1, 0, 0, 1)
    @test string(t) == "1970-01-01T00:00:01.000000001Z[UTC]"
    @test DateTime(Dipc.Timestamp{Second}(-1)) == DateTime(1969, 12, 31, 23, 59, 59)
    @test DateTime(Dipc.Timestamp{Microsecond}(-1)) == DateTime(1969, 12, 31, 23, 59, 59, 999)
end

view_of(bytes::Vector{UInt8}) = Dipc.StringView(pointer(bytes), length(bytes), bytes)

@testset "text that is looked at behaves as a String does" begin
    for bytes in (b"", b"plain", codeunits("é漢🦀x"), [0xff, 0x61], [0xe6, 0xbc], [0x80, 0x80, 0xf0, 0x9f])
        copied = collect(UInt8, bytes)
        string, view = String(copy(copied)), view_of(copied)
        @test view == string && string == view && isequal(view, string) && hash(view) == hash(string)
        @test collect(view) == collect(string)
        @test [isvalid(view, i) for i in 0:ncodeunits(view)+1] == [isvalid(string, i) for i in 0:ncodeunits(string)+1]
        @test length(view) == length(string) && String(view) == string && sprint(print, view) == string
        @test cmp(view, string) == 0 && (!isvalid(string) || uppercase(view) == uppercase(string))
    end
    @test_throws BoundsError codeunit(view_of([0x61]), 2)
end

@testset "times to wait" begin
    @test Dipc.nanoseconds(1.5) == 1_500_000_000
    @test Dipc.nanoseconds(Millisecond(2)) == 2_000_000
    @test Dipc.nanoseconds(nothing) == Dipc.nanoseconds(Inf) == Dipc.FOREVER
    @test_throws ArgumentError Dipc.nanoseconds(-1)
end
