// Where the positions of a convolution of one tap lie, or of one whose outputs have as many products each: shared by the
// kernels that number them through (streaming_conv.cu, pointwise_conv.cu, pointwise16_conv.cu).
#pragma once
#include "division.cuh"

// Where a position lies, in channel 0 and row 0 of a group.
struct Place {
    int64 input, out;
};

// Where all positions lie, from one to the next along each axis. All strides are in elements.
struct Space {
    int64 first;  // input of the first product of the first output
    int64 input_batch, input_group, input_channel, input_axis[3];
    int64 out_batch, out_group, out_row, out_axis[3];
    int64 sizes[2], size;  // of outputs along y and x, and of all axes
    int64 reciprocals[3];  // of these; long ones
    int64 scattered;       // whether axes do not lie as one: the last one stands for all otherwise

    // Of a sample's position, and its coordinates.
    __device__ Place place_of(int sample, int group, int rest, int (&at)[3]) const {
        Place place = {first + scaled(sample, input_batch) + group * input_group,
                       scaled(sample, out_batch) + group * out_group};
        at[0] = at[1] = 0, at[2] = rest;
        if (scattered) {
            const int line = long_quotient(unsigned(rest), reciprocals[1]);
            at[0] = long_quotient(unsigned(line), reciprocals[0]);
            at[1] = line - at[0] * int(sizes[0]), at[2] = rest - line * int(sizes[1]);
            place.input += scaled(at[0], input_axis[0]) + scaled(at[1], input_axis[1]);
            place.out += scaled(at[0], out_axis[0]) + scaled(at[1], out_axis[1]);
        }
        return {place.input + scaled(at[2], input_axis[2]), place.out + scaled(at[2], out_axis[2])};
    }
};
